#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/cli/command.h"
#include "framework/data/preprocess.h"
#include "framework/data/tokenizer.h"

namespace tessera {

/// Adds --format to `command`; `format` stays empty when the names of the files are to say it.
CommandOption* add_format(Command& command, std::optional<TextFormat>& format);

/// The flags that choose a tokenizer, by the names of their options in dataset_config.
struct TokenizerFlags {
  std::map<std::string, std::string> given;

  void add_to(Command& command);
  /// Throws ConfigError if a flag is wrong or the type reads no text.
  std::unique_ptr<Tokenizer> make(const TokenizerRegistry& registry) const;
};

}  // namespace tessera
