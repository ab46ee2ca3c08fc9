#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/options/mappings.h"
#include "framework/options/value.h"

namespace tessera::hugging_face {

// The rows of mappings/adapters/peft.yaml, one for each key of adapter_config.json:
//
//   to       the option of lora_config; lists and maps are copied
//   list     the option is a list; what is no list in the file is its only item
//   words    theirs: ours, for a key with words; other words are refused because of `why`
//   label    is about the folder, not about numbers, for the reason that it gives
//   ignored  does not change the numbers, for the reason that it gives
//   only     the values that change nothing; others are refused because of `why`. A list may have only these as items
//   default  PEFT's default, written unless an option says otherwise; `absent`: the key is not written

/// What became of a key of adapter_config.json.
struct PeftKey {
  std::string key, value;
  std::string option;  ///< of lora_config; empty: none, for the reason `why`
  std::string why;
};

/// An adapter_config.json of PEFT as options.
struct PeftConfig {
  options::Value lora_config;  ///< the recipe group; options that differ from PEFT's defaults; always rank and alpha
  std::string base;            ///< base_model_name_or_path; empty: not given
  std::string task_type = "CAUSAL_LM";
  std::vector<PeftKey> keys = {};       ///< every key that was converted or ignored, in the order of the file
  bool ties_tables = false;             ///< ensure_weight_tying
  std::vector<std::string> notes = {};  ///< for people: keys that were ignored though they are not at their defaults
};

/// The names of the two files of an adapter.
inline constexpr const char* peft_config_file = "adapter_config.json";
inline constexpr const char* peft_weights_file = "adapter_model.safetensors";

/// Reads an adapter_config.json. Keys without a row are accepted if they say nothing (null, false, "", [], {}). Throws
/// ConfigError that names every key that cannot be converted, with its value and the reason.
PeftConfig read_peft_config(const std::filesystem::path& file, const options::Mappings& mappings);
/// The same for the text of one; messages begin with `speaker`.
PeftConfig parse_peft_config(const std::string& words, const std::string& speaker, const options::Mappings& mappings);

/// task_type of a model with a score head; of one without it is CAUSAL_LM.
inline constexpr const char* classifier_task = "SEQ_CLS";

/// What adapter_config.json says beside options.
struct PeftLabels {
  std::string base;  ///< base_model_name_or_path
  std::string task_type = "CAUSAL_LM";
  bool fan_in_fan_out = false;       ///< the adapted modules have weights [in, out]
  bool ensure_weight_tying = false;  ///< a tied table is trained
};
/// The text of adapter_config.json for the options `lora_config`, with every key of the table and keys sorted, as PEFT
/// writes it. Options that PEFT does not have are left out.
std::string write_peft_config(const options::Value& lora_config, const PeftLabels& labels,
                              const options::Mappings& mappings);

}  // namespace tessera::hugging_face
