#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/data/preprocessing/preprocess.h"
#include "framework/data/tokenizers/chunk_encoder.h"

namespace tessera::data {

/// What a request comes to: which files are read, how, and what is written.
struct PreprocessPlan {
  std::vector<TextInput> inputs;
  EncodingOptions encoding;
  std::vector<std::string> prefixes;  ///< [partitions][keys]
  std::vector<std::string> merged;    ///< [keys] of the joined partitions; empty without partitions
  std::string state_file;             ///< where a run can be resumed, while it is not complete
  std::vector<std::string> notes;

  /// Throws ConfigError for what does not fit together, an input that is missing, or an output that would overwrite an
  /// input.
  PreprocessPlan(const Tokenizer& tokenizer, const PreprocessRequest& request);
  /// Everything that the output depends on, to be compared by a later run. Inputs by name, size and time.
  nlohmann::json identity(const Tokenizer& tokenizer) const;

 private:
  void choose_inputs(const PreprocessRequest& request);
  bool use_existing(const std::string& input, const std::string& mark, const PreprocessRequest& request);
  void choose_formats(const PreprocessRequest& request);
  void deal(const PreprocessRequest& request);
  void choose_outputs(const Tokenizer& tokenizer, const PreprocessRequest& request);
};

}  // namespace tessera::data
