#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/data/preprocessing/preprocess.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::cli {

/// Adds --format to `command`; `format` stays empty when the names of the files are to say it.
CommandOption* add_format(Command& command, std::optional<data::TextFormat>& format);

/// The flags that choose a tokenizer, under Megatron-LM's names: those of their options in dataset_config, with dashes.
struct TokenizerFlags {
  std::map<std::string, std::string> given;  ///< option -> value, of options with one value
  std::vector<std::string> given_special_tokens;

  void add_to(Command& command);
  bool empty() const { return given.empty() && given_special_tokens.empty(); }
  /// Throws ConfigError if a flag is wrong or the type reads no text.
  std::unique_ptr<data::Tokenizer> make(const data::TokenizerRegistry& registry) const;
};

}  // namespace tessera::cli
