#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/checkpoint/progress.h"
#include "framework/interop/megatron/state_piece.h"

namespace tessera::megatron {

/// A weight as one rank of Megatron-LM has it.
struct MegatronWeight {
  std::string name;                ///< Megatron-LM's name: layers are counted from 0 in every chunk
  StatePieces elements;            ///< this rank's shard
  std::vector<StatePieces> slots;  ///< optimizer state, in the order of MegatronContent::slots
  bool decays = true;
  bool of_expert = false;
  bool buffer = false;             ///< fp32 in the model, not in the optimizer
  bool bucket_of_its_own = false;  ///< see MegatronFlat
};

/// What the weights of one of Megatron-LM's parameter groups have in common, apart from being of experts or not.
struct MegatronGroup {
  bool decays = true;
  bool decoupled = false;  ///< their learning rate is that of decoupled_lr
  bool operator==(const MegatronGroup&) const = default;
};

/// Everything that one rank writes.
struct MegatronContent {
  std::vector<std::vector<MegatronWeight>> chunks;  ///< each in the order of the modules
  std::vector<std::string> slots;                   ///< names of the optimizer state, "exp_avg"
  bool shared = false;                              ///< data-parallel ranks share the optimizer state: distrib_optim.pt
  bool chains_optimizers = false;                   ///< expert parallelism: experts have their own optimizer
  bool first_of_replicas = true;  ///< no data-parallel rank before it has the same weights, experts aside
  std::deque<std::vector<std::byte>> memory = {};    ///< of tensors that had to be assembled
  std::deque<checkpoint::LiveState> assembled = {};  ///< these tensors
};

/// Writes model_optim_rng.pt, and distrib_optim.pt if the optimizer state is shared, into `folder`, which must exist.
/// `args`: Megatron-LM's arguments. `type`: type of the weights. Throws IoError.
void write_megatron_rank(const std::filesystem::path& folder, std::int64_t iteration, const MegatronContent& content,
                         const checkpoint::Progress& progress, const Json& args, DType type);

/// What a distributed checkpoint has in common.pt, beside arguments and progress.
struct MegatronCommon {
  struct Optimizer {
    std::vector<MegatronGroup> groups;
    bool of_experts = false;
    std::int64_t weights = 0;  ///< the largest number of its weights that a rank has
  };
  std::vector<Optimizer> optimizers;
  std::vector<std::string> slots;  ///< names of the optimizer state, "exp_avg"; empty: there is none
  std::string sharding;            ///< form of the distributed optimizer's state; empty: it is not distributed
  bool describes_itself = false;   ///< says so in content_metadata, as core_v0.14 and later do
};

/// Writes common.pt. Throws IoError.
void write_megatron_common(const std::filesystem::path& path, std::int64_t iteration, const MegatronCommon& common,
                           const checkpoint::Progress& progress, const Json& args, DType type);

}  // namespace tessera::megatron
