#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/preprocessing/chunk_encoder.h"
#include "framework/preprocessing/preprocess.h"

namespace tessera::preprocessing {

/// A resolved request: the files to read, how to read them, and the files to write.
struct PreprocessPlan {
  std::vector<TextInput> inputs;
  EncodingOptions encoding;
  std::vector<std::string> prefixes;  ///< [partitions][keys]
  std::vector<std::string> merged;    ///< [keys]: prefixes of the merged partitions; empty without partitions
  std::string state_file;             ///< file with the resume point, while the run is incomplete
  std::vector<std::string> notes;

  /// Throws ConfigError if the request is inconsistent, an input is missing, or an output would overwrite an input.
  PreprocessPlan(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request);
  /// Everything that the output depends on; a resumed run compares it. Inputs are identified by name, size and time.
  nlohmann::json identity(const tokenizers::Tokenizer& tokenizer) const;

 private:
  void choose_inputs(const PreprocessRequest& request);
  bool use_existing(const std::string& input, const std::string& mark, const PreprocessRequest& request);
  void choose_formats(const PreprocessRequest& request);
  void deal(const PreprocessRequest& request);
  void choose_outputs(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request);
};

}  // namespace tessera::preprocessing
