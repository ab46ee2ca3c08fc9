#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/torch/pickle.h"
#include "framework/options/value.h"
#include "framework/tensor/tensor.h"

// Models of Megatron-LM from before its core's GPTModel (--use-legacy-models), in checkpoints of --ckpt-format torch.

namespace tessera::megatron {

/// The `model` of a rank, a dict of tensors or, of a legacy model, of dicts of them: each with its keys joined by dots,
/// in the order of the file.
std::vector<std::pair<std::string, const torch::PickleNode*>> tensors_by_name(const torch::PickleNode& model);

/// Megatron core's name for a tensor of a legacy model, by the rows under `legacy` of mappings/weights/megatron.yaml;
/// empty if it is not a weight. A name that does not begin as one of a legacy model is returned as it is. Throws
/// ConfigError for a part of a model that is no GPT.
std::string core_name_of_legacy(const std::string& theirs, const options::Value& table);

/// How the rows of a fused weight of queries, keys and values lie in a file.
enum class FusedRows {
  by_head,      ///< [heads, 3, channels], as here
  parts_first,  ///< [3, heads, channels]: checkpoint_version 0
  parts_last,   ///< [heads, channels, 3]: checkpoint_version 1
};
/// How they lie in a tensor of the name `theirs`, in a file of that checkpoint_version.
FusedRows fused_rows(const std::string& theirs, double checkpoint_version);

/// Copies the rows of `from`, of which there are 3 * heads * channels, in the order [heads, 3, channels] to `into`, of
/// the same size.
void copy_by_head(const Tensor& from, FusedRows rows, std::int64_t heads, std::span<std::byte> into);

}  // namespace tessera::megatron
