#pragma once

#include <memory>
#include <vector>

#include "framework/interop/megatron/megatron_dist_weights.h"
#include "framework/interop/megatron/megatron_saved.h"

namespace tessera::megatron {

/// Adds to `weights` the optimizer state that the distributed optimizer stored as buffers, in which the weights of a
/// rank lie one after the other: as one object for each group of data-parallel ranks (dp_zero_gather_scatter), or as
/// tensors by bucket (fully_sharded_bucket_space, dp_reshardable). What lies where follows from the model of `recipe`
/// and from the layout and bucket sizes that the arguments of `saved` name. Returns the objects, which must live as
/// long as `weights`. Throws ConfigError, beginning with `speaker`, if a buffer has another length than that model on
/// that layout has, or the layout is one that is not read.
std::vector<std::unique_ptr<torch::TorchFile>> add_buffers(DistWeights& weights, const torch::DcpFolder& folder,
                                                           const MegatronSaved& saved, const options::Value& recipe,
                                                           const options::Value& table, const std::string& speaker);

/// Whether the checkpoint has such buffers.
bool has_buffers(const torch::DcpIndex& index);

}  // namespace tessera::megatron
