#pragma once

#include <cstdint>
#include <string>
#include <vector>

// How Megatron-LM names and lays out what its ranks save.

namespace tessera::megatron {

/// The file of a rank's folder with weights and training state.
inline constexpr const char* weights_file = "model_optim_rng.pt";

/// "mp_rank_01", with several stages "mp_rank_01_002".
std::string megatron_rank_folder(std::int64_t tensor_rank, std::int64_t stage, std::int64_t stages);

/// The layer in "decoder.layers.7.mlp..." or "mtp.layers.0.eh_proj...", counted within these; -1: in none.
std::int64_t megatron_layer(const std::string& name);

/// The name with its decoder layer's number `by` higher.
std::string megatron_shifted(const std::string& name, std::int64_t by);

/// A weight of one chunk, as the distributed optimizer lays it out.
struct MegatronFlat {
  std::int64_t elements = 0;
  bool bucket_of_its_own = false;  ///< an embedding of which the pipeline's ends have copies
};
/// Where each weight of a chunk, given in the order of the modules, begins in a buffer of distrib_optim.pt; and the
/// buffer's length as the last item. `bucket`: elements after which a bucket is full; 0: there is one.
std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket);

}  // namespace tessera::megatron
