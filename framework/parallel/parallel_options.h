#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/schema.h"

namespace tessera {

/// A number for each chunk of layers, [stage][chunk]. Written as a list of lists, as one list (a chunk on each stage),
/// or as text that holds either ("[[4,4],[4,2]]", "4,4,4,2"). Empty: not given; null and empty text are read as that.
struct ChunkNumbers {
  std::vector<std::vector<std::int64_t>> stages;
  bool empty() const { return stages.empty(); }
};
template <>
struct OptionType<ChunkNumbers> {
  using Item = std::int64_t;
  static bool each(const ChunkNumbers& numbers, const auto& holds) {
    for (const auto& stage : numbers.stages)
      if (!std::all_of(stage.begin(), stage.end(), holds)) return false;
    return true;
  }
  static std::string name() { return "list of list of int, or null"; }
  static std::string json_schema();
  static bool read(const Value& value, ChunkNumbers& out);
  static Value write(const ChunkNumbers& numbers);
};

/// Numbers of layers. Written as a list or as text ("60,61"). Empty: none; null and empty text are read as that.
struct LayerIds {
  std::vector<std::int64_t> ids;
};
template <>
struct OptionType<LayerIds> {
  using Item = std::int64_t;
  static bool each(const LayerIds& layers, const auto& holds) {
    return std::all_of(layers.ids.begin(), layers.ids.end(), holds);
  }
  static std::string name() { return "list of int, or null"; }
  static std::string json_schema();
  static bool read(const Value& value, LayerIds& out);
  static Value write(const LayerIds& layers);
};

/// What data parallel ranks share.
enum class ZeroLevel { z1 };  ///< z1: the optimizer's state
inline Words<ZeroLevel> words(ZeroLevel) { return {{"z1", ZeroLevel::z1}}; }

/// parallel_config: how a run is cut over processes. Sources: Megatron-LM's arguments (core_v0.12.1 and, for
/// pipeline_model_parallel_layout, later), MindSpeed-Core-MS's ModelParallelConfig.
struct ParallelOptions {
  std::int64_t tensor_model_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
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
};
void describe(Schema<ParallelOptions>& s);

/// What is wrong, at which option, and what to do.
struct Mistake {
  std::string option;  ///< "parallel_config.num_layer_list"
  std::string message, suggestion;
  std::string rule = {};  ///< its name in docs/rules.md
};

/// What does not fit a run of `world` processes.
std::vector<Mistake> mistakes_of_ranks(const ParallelOptions& options, std::int64_t world);

/// Data parallel ranks of `world` processes; at least 1, also where the world does not fit.
std::int64_t data_parallel_ranks(const ParallelOptions& options, std::int64_t world);

/// What tensor parallel ranks cut.
struct CutExtents {
  std::int64_t heads = 0, groups = 0;  ///< of attention: query heads, groups of keys and values
  std::int64_t inner = 0;              ///< width of the feed-forward
  std::int64_t vocabulary = 0;         ///< rows, padding included; 0: not known yet
  std::int64_t seq_length = 0;
};
/// What tensor_model_parallel_size does not divide. Groups of keys and values may be fewer than ranks when they divide
/// their number: each is then repeated on several.
std::vector<Mistake> mistakes_of_extents(const ParallelOptions& options, const CutExtents& extents);

}  // namespace tessera
