#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/options/value.h"

// Names and layout of the files that Megatron-LM's ranks save.

namespace tessera::megatron {

/// The file of a rank's folder with weights and training state.
inline constexpr const char* weights_file = "model_optim_rng.pt";

/// The folder of a rank: "mp_rank_01" with the tensor-parallel rank; with several stages also the stage,
/// "mp_rank_01_002"; with expert parallelism also the expert-parallel rank, "mp_rank_01_002_003". `rank` is below
/// layout.ranks().
std::string megatron_rank_folder(const checkpoint::CheckpointLayout& layout, std::int64_t rank, std::int64_t stage);

/// The layer number in "decoder.layers.7.mlp..." or "mtp.layers.0.eh_proj...", counted within these; -1: the name has
/// none.
std::int64_t megatron_layer(const std::string& name);

/// The name with its decoder layer number increased by `by`.
std::string megatron_shifted(const std::string& name, std::int64_t by);

/// Whether the weight belongs to an expert, or contains all experts of a rank.
bool megatron_is_of_expert(const std::string& name);

/// The expert number in "decoder.layers.7.mlp.experts.local_experts.3.linear_fc1.weight"; -1: the name has none.
std::int64_t megatron_expert(const std::string& name);

/// The name with its expert number increased by `by`.
std::string megatron_shifted_expert(const std::string& name, std::int64_t by);

/// The indices that sort `names` (our names, with any layer numbers) into the order in which Megatron-LM's modules own
/// the weights: by mappings/weights/megatron.yaml, the experts of a layer by number, a bias after its weight.
std::vector<std::size_t> megatron_order(const std::vector<std::string>& names, const options::Value& table);

/// A weight of one chunk, as the distributed optimizer lays it out.
struct MegatronFlat {
  std::int64_t elements = 0;
  bool bucket_of_its_own = false;  ///< an embedding that the first and last pipeline stage share
};
/// The start of each weight of a chunk, given in the order of the modules, in a buffer of distrib_optim.pt, in
/// elements; the last item is the length of the buffer. `bucket`: number of elements after which a bucket is full; 0: a
/// single bucket. `begins`, if not null, receives the start of each bucket in the buffer, ascending.
std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket,
                                               std::vector<std::int64_t>* begins = nullptr);

}  // namespace tessera::megatron
