#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/schema.h"
#include "framework/parallel/context_layout.h"
#include "framework/tensor/expert_sharers.h"

namespace tessera::parallel {

/// One number for each chunk, [stage][chunk]. In a recipe: a list of lists, a list (one chunk per stage), or text with
/// either ("[[4,4],[4,2]]", "4,4,4,2"). Empty: not given; null and empty text mean the same.
struct ChunkNumbers {
  std::vector<std::vector<std::int64_t>> stages;
  bool empty() const { return stages.empty(); }

  /// How the option is read, written and described (options/option_type.h).
  struct Option {
    using Item = std::int64_t;
    static bool each(const ChunkNumbers& numbers, const auto& holds) {
      for (const auto& stage : numbers.stages)
        if (!std::all_of(stage.begin(), stage.end(), holds)) return false;
      return true;
    }
    static std::string name() { return "list of list of int, or null"; }
    static std::string json_schema();
    static bool read(const options::Value& value, ChunkNumbers& out);
    static options::Value write(const ChunkNumbers& numbers);
  };
};

/// Layer indices. In a recipe: a list, or text ("60,61"). Empty: none; null and empty text mean the same.
struct LayerIds {
  std::vector<std::int64_t> ids;

  /// How the option is read, written and described.
  struct Option {
    using Item = std::int64_t;
    static bool each(const LayerIds& layers, const auto& holds) {
      return std::all_of(layers.ids.begin(), layers.ids.end(), holds);
    }
    static std::string name() { return "list of int, or null"; }
    static std::string json_schema();
    static bool read(const options::Value& value, LayerIds& out);
    static options::Value write(const LayerIds& layers);
  };
};

inline options::Words<ContextExchange> words(ContextExchange) {
  return {{"p2p", ContextExchange::p2p},
          {"all_gather", ContextExchange::all_gather},
          {"a2a", ContextExchange::a2a},
          {"a2a+p2p", ContextExchange::a2a_p2p}};
}
/// One exchange for all layers, or a list with one for each layer. Empty: not given; null and empty text mean the same.
struct ContextExchanges {
  std::vector<ContextExchange> layers;
  bool empty() const { return layers.empty(); }

  /// How the option is read, written and described.
  struct Option {
    using Item = ContextExchange;
    static std::string name() { return options::OptionType<ContextExchange>::name() + ", a list of them, or null"; }
    static std::string json_schema();
    static bool read(const options::Value& value, ContextExchanges& out);
    static options::Value write(const ContextExchanges& all);
  };
};

/// MindSpeed's names of the algorithms of context parallelism: a2a, p2p, a2a+p2p and all_gather.
enum class ContextAlgorithm { ulysses_cp_algo, megatron_cp_algo, hybrid_cp_algo, kvallgather_cp_algo };
inline options::Words<ContextAlgorithm> words(ContextAlgorithm) {
  return {{"ulysses_cp_algo", ContextAlgorithm::ulysses_cp_algo},
          {"megatron_cp_algo", ContextAlgorithm::megatron_cp_algo},
          {"hybrid_cp_algo", ContextAlgorithm::hybrid_cp_algo},
          {"kvallgather_cp_algo", ContextAlgorithm::kvallgather_cp_algo}};
}

/// ZeRO level: what is sharded over data-parallel ranks.
enum class ZeroLevel { z1 };  ///< z1: the optimizer state
inline options::Words<ZeroLevel> words(ZeroLevel) { return {{"z1", ZeroLevel::z1}}; }

/// parallel_config: the parallel layout of a run. describe() documents each option. Sources: Megatron-LM's arguments
/// (core_v0.12.1; pipeline_model_parallel_layout from a later version), MindSpeed-Core-MS's ModelParallelConfig.
struct ParallelOptions {
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  ContextExchanges cp_comm_type;
  std::optional<std::vector<std::int64_t>> hierarchical_context_parallel_sizes;
  std::optional<ContextAlgorithm> context_parallel_algo;
  std::optional<std::int64_t> ulysses_degree_in_cp;
  std::int64_t expert_model_parallel_size = 1;
  std::optional<std::int64_t> expert_tensor_parallel_size;
  std::optional<std::int64_t> data_parallel_size;
  bool sequence_parallel = false;
  bool use_tp_pp_dp_mapping = false;

  std::optional<std::int64_t> virtual_pipeline_model_parallel_size;
  std::optional<std::int64_t> num_virtual_stages_per_pipeline_rank;
  std::optional<std::int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<std::int64_t> microbatch_group_size_per_vp_stage;

  ChunkNumbers num_layer_list;
  std::optional<std::int64_t> decoder_first_pipeline_num_layers;
  std::optional<std::int64_t> decoder_last_pipeline_num_layers;
  std::optional<std::string> pipeline_model_parallel_layout;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  bool standalone_embedding_stage = false;
  LayerIds noop_layers;

  ChunkNumbers recompute;
  ChunkNumbers select_recompute;
  ChunkNumbers select_comm_recompute;

  std::optional<ZeroLevel> zero_level;
  std::optional<bool> overlap_grad_reduce;

  /// Number of ranks that share each expert.
  std::int64_t sharers_of_expert() const {
    return tessera::sharers_of_expert(expert_tensor_parallel_size.value_or(0), tensor_model_parallel_size);
  }
};
/// Declares the options: name, default, limits, meaning.
void describe(options::Schema<ParallelOptions>& s);

/// Returns which options do not fit a run of `world` ranks.
std::vector<options::Finding> mistakes_of_ranks(const ParallelOptions& options, std::int64_t world);

/// Data-parallel size of a run of `world` ranks: world / (tensor * context * pipeline), rounded down, at least 1.
/// mistakes_of_ranks() checks whether it divides.
std::int64_t data_parallel_ranks(const ParallelOptions& options, std::int64_t world);

/// Number of ranks of the smallest run with these sizes: one replica, data_parallel_size replicas, or as many ranks as
/// the experts need.
std::int64_t fewest_ranks(const ParallelOptions& options);

/// Sizes of a model's experts, for the rules of expert parallelism.
struct ExpertExtents {
  std::int64_t experts = 0;  ///< experts of each mixture of experts; 0: the model has none
  std::int64_t inner = 0;    ///< moe_ffn_hidden_size
  bool half = false;         ///< the model is trained in fp16
};
/// Returns which options do not fit these experts.
std::vector<options::Finding> mistakes_of_experts(const ParallelOptions& options, const ExpertExtents& extents);
/// Returns which expert-parallel sizes do not fit a run of `world` ranks. Requires that mistakes_of_ranks() returns
/// none.
std::vector<options::Finding> mistakes_of_expert_ranks(const ParallelOptions& options, std::int64_t world);

/// Sizes of a model that tensor and context parallelism divide. Each has the option that it comes from, for messages.
struct CutExtents {
  /// The attention heads of the layers of a tower.
  struct Heads {
    std::int64_t heads = 0, groups = 0;  ///< query heads; key/value groups
    std::string option = "model_config.num_attention_heads", groups_option = "model_config.num_query_groups";
  };
  /// Rows or columns of weights.
  struct Width {
    std::string option, of;  ///< for example "model_config.q_lora_rank", and what `extent` means, in words
    std::int64_t extent = 0;
  };
  std::vector<Heads> heads = {};
  std::vector<Width> inner = {};  ///< hidden sizes of feed-forward networks
  std::int64_t expert_inner = 0;  ///< hidden size of an expert
  std::int64_t vocabulary = 0;    ///< rows including padding; 0: not known yet
  std::int64_t seq_length = 0;    ///< in tokens
  /// Projections whose weight rows are divided although every rank needs all of their outputs.
  std::vector<Width> gathered = {};

  /// The least number of key/value groups of a layer; 1 without attention.
  std::int64_t least_groups() const;
};
/// Returns which extents are not divisible by tensor_model_parallel_size. Key/value groups may be fewer than ranks if
/// their number divides that of the ranks: each group is then replicated on several ranks, as many in all towers.
std::vector<options::Finding> mistakes_of_extents(const ParallelOptions& options, const CutExtents& extents);

}  // namespace tessera::parallel
