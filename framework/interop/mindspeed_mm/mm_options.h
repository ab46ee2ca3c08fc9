#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/interop/mindspeed_mm/mm_layout.h"
#include "framework/options/schema.h"

namespace tessera::mindspeed_mm {

/// The commands of MindSpeed-MM's mm-convert for a model.
enum class MmCommand { hf_to_mm, mm_to_hf, resplit };
inline options::Words<MmCommand> words(MmCommand) {
  return {{"hf_to_mm", MmCommand::hf_to_mm}, {"mm_to_hf", MmCommand::mm_to_hf}, {"resplit", MmCommand::resplit}};
}

/// Layout of the query, key and value projections of the vision tower in a folder of MindSpeed-MM.
enum class TowerQkv { per_head, concatenated };
inline options::Words<TowerQkv> words(TowerQkv) {
  return {{"per_head", TowerQkv::per_head}, {"concatenated", TowerQkv::concatenated}};
}

// The options below are those of mm-convert under `cfg`, by its names; tower_qkv and tie_word_embeddings are ours.

/// Division over ranks: parallel_config, source_parallel_config, target_parallel_config.
struct MmParallelConfig {
  StageLayers vit_pp_layers{{{-1}}}, llm_pp_layers{{{-1}}};  ///< required
  std::optional<StageLayers> audio_pp_layers;
  std::int64_t tp_size = 1, ep_size = 1, vit_tp_size = 0, audio_tp_size = 0;

  MmLayout layout() const { return {tp_size, {vit_pp_layers, llm_pp_layers}}; }
};
/// A folder of Transformers: hf_config.
struct MmHfConfig {
  std::string hf_dir;
};
struct HfToMmConfig {
  std::string mm_dir;
  bool save_vit_only = false, trust_remote_code = false;
  std::optional<TowerQkv> tower_qkv;
};
struct MmToHfConfig {
  std::string save_hf_dir, mm_dir;
  bool trust_remote_code = false;
  std::optional<TowerQkv> tower_qkv;
};
struct ResplitConfig {
  std::string source_dir, target_dir;
  std::optional<bool> tie_word_embeddings;
};
void describe(options::Schema<MmParallelConfig>& s);
void describe(options::Schema<MmHfConfig>& s);
void describe(options::Schema<HfToMmConfig>& s);
void describe(options::Schema<MmToHfConfig>& s);
void describe(options::Schema<ResplitConfig>& s);

/// The options of a command; those of commands that it is not have their defaults.
struct MmOptions {
  HfToMmConfig hf_to_mm;
  MmToHfConfig mm_to_hf;
  ResplitConfig resplit;
  MmHfConfig hf;
  MmParallelConfig parallel, target;  ///< parallel_config or source_parallel_config; target_parallel_config
};

/// Reads the options of `command` from the group `cfg` of `tree`. Mistakes go to `report`: unknown and missing options,
/// values out of range, what is not supported, layouts with mistakes (mm_layout.h).
MmOptions read_options(MmCommand command, const options::Value& tree, options::Report& report);

/// What there is to know about the options of `command`: names without `cfg`.
std::vector<options::OptionFacts> options_of(MmCommand command);

/// A YAML file with all options of `command` and their defaults, each with a comment that explains it.
std::string template_of(MmCommand command);

/// The names of the layers' options in a layout, in its order of towers: "parallel_config.vit_pp_layers".
std::vector<std::string> names_of_layers(const std::string& map);

/// Adds the mistakes of options to `report`, with the lines of `tree` where they were written. Their names are without
/// `cfg`.
void report_mistakes(const std::vector<options::Finding>& mistakes, const options::Value& tree,
                     options::Report& report);

}  // namespace tessera::mindspeed_mm
