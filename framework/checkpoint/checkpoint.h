#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace tessera {

/// A box of a named global tensor: what one rank holds of it. Names, shapes and offsets are of the whole, unsplit model, so
/// any layout can load what any other saved.
struct TensorRange {
  std::string name;                   ///< "decoder.layers.0.mlp.linear_fc1.weight", "optimizer.exp_avg.<name>"
  Shape global_shape;                 ///< of the unsplit tensor
  std::vector<std::int64_t> offsets;  ///< of this box in it, one per dim
  Tensor tensor;                      ///< the box's elements, contiguous
};

/// The whole of a tensor held by one process.
TensorRange whole(std::string name, const Tensor& tensor);

/// Small named state: counters, resolved recipe, tokenizer files. Bytes as the caller gives them.
using Blobs = std::map<std::string, std::string>;

struct CheckpointInfo {
  std::filesystem::path folder;  ///< <root>/<prefix>iter_0000100
  std::int64_t iteration;
};

}  // namespace tessera
