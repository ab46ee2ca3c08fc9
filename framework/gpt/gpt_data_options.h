#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/gpt/blend.h"
#include "framework/gpt/data_path.h"
#include "framework/options/schema.h"

namespace tessera::gpt {

/// The options of dataset_type gpt in dataset_config.
struct GptDataOptions {
  DataPath data_path;
  std::optional<std::string> split;
  DataPath train_data_path, valid_data_path, test_data_path;
  std::optional<std::string> data_args_path, per_split_data_args_path;
  std::optional<std::string> data_cache_path;
  std::int64_t num_dataset_builder_threads = 1;
  bool mmap_bin_files = true;
  bool no_shared_storage = false;
  double mid_level_dataset_surplus = 0.005;
  bool multiple_validation_sets = false;
  std::vector<std::string> validation_set_names;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool add_extra_token_to_sequence = true, drop_last_partial_validation_sequence = true;
  bool create_attention_mask_in_dataloader = true, dataloader_inter_document_masking = false;
  bool allow_ambiguous_pad_tokens = false;

  /// `split`, which divides `data_path`; its default is Megatron-LM's "969, 30, 1".
  std::string weights_of_splits() const { return split.value_or("969, 30, 1"); }
};
void describe(options::Schema<GptDataOptions>& s);

/// The data of a run: one blend that `split` divides, or one blend per split.
struct GptSources {
  std::optional<Blend> blend;
  std::string split;                              ///< weights that divide `blend`: as given, else "969, 30, 1"
  std::array<std::optional<Blend>, 3> per_split;  ///< if there is no `blend`: train, valid, test
};

/// Throws ConfigError if no option names data.
void must_name_data(const GptDataOptions& options);

/// Reads the files that the options name. Throws ConfigError if there is no data, or options break a rule of
/// describe().
GptSources gpt_sources(const GptDataOptions& options);

}  // namespace tessera::gpt
