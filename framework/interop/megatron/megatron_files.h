#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/options/value.h"

// How Megatron-LM names and lays out what its ranks save.

namespace tessera::megatron {

/// The file of a rank's folder with weights and training state.
inline constexpr const char* weights_file = "model_optim_rng.pt";

/// "mp_rank_01": tensor-parallel rank; behind it, of several stages the stage, "mp_rank_01_002", and where ranks divide
/// experts the expert-parallel rank, "mp_rank_01_002_003". `rank` is below layout.ranks().
std::string megatron_rank_folder(const checkpoint::CheckpointLayout& layout, std::int64_t rank, std::int64_t stage);

/// The layer in "decoder.layers.7.mlp..." or "mtp.layers.0.eh_proj...", counted within these; -1: in none.
std::int64_t megatron_layer(const std::string& name);

/// The name with its decoder layer's number `by` higher.
std::string megatron_shifted(const std::string& name, std::int64_t by);

/// Whether the weight is one of an expert, also where one weight has all experts of a rank.
bool megatron_is_of_expert(const std::string& name);

/// The expert of a layer in "decoder.layers.7.mlp.experts.local_experts.3.linear_fc1.weight"; -1: in none.
std::int64_t megatron_expert(const std::string& name);

/// The name with its expert's number `by` higher.
std::string megatron_shifted_expert(const std::string& name, std::int64_t by);

/// The indices of `names`, ours with any numbers of layers, in the order in which Megatron-LM's modules own them:
/// mappings/weights/megatron.yaml, the experts of a layer by their numbers, a bias after its weight.
std::vector<std::size_t> megatron_order(const std::vector<std::string>& names, const options::Value& table);

/// A weight of one chunk, as the distributed optimizer lays it out.
struct MegatronFlat {
  std::int64_t elements = 0;
  bool bucket_of_its_own = false;  ///< an embedding of which the pipeline's ends have copies
};
/// Where each weight of a chunk, given in the order of the modules, begins in a buffer of distrib_optim.pt; and the
/// buffer's length as the last item. `bucket`: elements after which a bucket is full; 0: there is one.
std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket);

}  // namespace tessera::megatron
