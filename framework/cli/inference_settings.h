#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/model/generation.h"

namespace tessera::cli {

/// What a JSON file of MindSpeed-MM says of answers (inference_qwen2vl_*.json). Its keys of the model are not read: the
/// folder of the model describes it.
struct InferenceSettings {
  std::optional<std::string> folder;     ///< tokenizer.from_pretrained
  std::vector<std::string> prompts;      ///< one answer for each
  std::vector<std::string> images;       ///< of every prompt
  std::int64_t tokens = 256;             ///< generation_config.max_new_tokens
  model::Sampling sampling;              ///< generation_config; greedy without do_sample
  std::vector<std::int32_t> end_tokens;  ///< generation_config.eos_token_id
  std::vector<std::string> notes;        ///< about keys that are not read and may be mistakes
};

/// Throws ConfigError, with all mistakes, if the file cannot be read, is no JSON object, is for another pipeline, a
/// value has a wrong type or range, or generation_config asks for what is not supported (beams, for one).
InferenceSettings read_inference_settings(const std::string& file);

}  // namespace tessera::cli
