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

/// The flags that choose a tokenizer: one for each option of dataset_config that the registered types of tokenizers
/// declare, with dashes, as Megatron-LM names it. Its help is the text of the option.
struct TokenizerFlags {
  std::map<std::string, std::string> given;  ///< option -> value, for options with one value
  std::map<std::string, std::vector<std::string>> given_lists;

  /// This object must live until the command has run.
  void add_to(Command& command, const tokenizers::TokenizerRegistry& registry);
  bool empty() const;
  /// Makes the tokenizer. Throws ConfigError if a flag is wrong or a tokenizer of this type cannot encode text.
  std::unique_ptr<tokenizers::Tokenizer> make(const tokenizers::TokenizerRegistry& registry) const;
};

}  // namespace tessera::cli
