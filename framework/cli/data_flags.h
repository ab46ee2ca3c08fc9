#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/preprocessing/preprocess.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::cli {

/// Adds --format to `command`. `format` stays empty if the flag is not given: the format then follows from the file
/// names.
CommandOption* add_format(Command& command, std::optional<files::TextFormat>& format);

/// The flags that choose a tokenizer, with Megatron-LM's names: the names of the options in dataset_config, with
/// dashes.
struct TokenizerFlags {
  std::map<std::string, std::string> given;  ///< option -> value, for options with one value
  std::vector<std::string> given_special_tokens;

  void add_to(Command& command);
  bool empty() const { return given.empty() && given_special_tokens.empty(); }
  /// Makes the tokenizer. Throws ConfigError if a flag is wrong or a tokenizer of this type cannot encode text.
  std::unique_ptr<tokenizers::Tokenizer> make(const tokenizers::TokenizerRegistry& registry) const;
};

}  // namespace tessera::cli
