#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera data`: preprocess, inspect, merge, checksum, show, to-jsonl, train-bpe, render-chat. What is wrong with
/// flags, texts or files is a ConfigError, and then no half-written file is left.
void add_data_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
