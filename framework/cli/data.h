#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera data`: preprocess, inspect, merge, checksum, show, to-jsonl, train-bpe, render-chat. Mistakes in
/// flags, texts or files are a ConfigError, after which no half-written file is left.
void add_data_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
