#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checkpoint/box.h"
#include "framework/options/value.h"
#include "framework/tensor/parameter_role.h"

// How the ranks that save a checkpoint divide a model.

namespace tessera {

/// The ranks of a checkpoint. Which layers a stage has, [stage][chunk]: layers are numbered through chunk 0 of all
/// stages, then chunk 1, ...
struct CheckpointLayout {
  std::int64_t tensor = 1, data = 1;
  std::vector<std::vector<std::int64_t>> layers = {};  ///< empty: one stage with all there are
  bool distributed_optimizer = false;                  ///< data-parallel ranks share the optimizer state
  std::int64_t vocabulary = 0;                         ///< rows, for ranks that have none of them; 0: as tensors say

  std::int64_t stages() const { return layers.empty() ? 1 : static_cast<std::int64_t>(layers.size()); }
};

/// A box of an unsharded tensor, without memory.
struct TensorBox {
  std::string name;
  ParameterRole role = ParameterRole::matrix;  ///< as in TensorRange
  Shape global_shape;
  Box box;
};

/// The layer in "decoder.layers.7.mlp..."; -1: in none.
std::int64_t layer_of(const std::string& name);

/// Which parts of a weight the tensor-parallel ranks have: mappings/weights/megatron.yaml, `cut`.
class CheckpointCut {
 public:
  /// `gated`: the first product of the feed-forward has the rows of the gate, then as many others; both are cut.
  CheckpointCut(const Value& table, bool gated);

  /// The boxes of the whole tensor that make rank `rank`'s part, one below the other. `name` may be that of optimizer
  /// state, "optimizer.<slot>.<weight>". Throws ConfigError when `ranks` do not divide it.
  std::vector<Box> boxes(const std::string& name, const Shape& whole, std::int64_t ranks, std::int64_t rank) const;
  /// The shape of one rank's part.
  Shape part(const std::string& name, const Shape& whole, std::int64_t ranks) const;
  /// The whole tensor's from that of one rank's part.
  Shape whole(const std::string& name, const Shape& part, std::int64_t ranks) const;

 private:
  /// The dim that is cut; -1: every rank has all of it.
  int dim_of(const std::string& name) const;
  std::vector<std::string> rows_, columns_;  ///< ends of names
  bool gated_;
};

}  // namespace tessera
