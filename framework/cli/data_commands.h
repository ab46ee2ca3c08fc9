#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Add the subcommands of `tessera data` to `data`. Each is in the source file of its name.
void add_data_preprocess(Command& data, CommandContext& context);
void add_data_inspect(Command& data, CommandContext& context);
void add_data_merge(Command& data);
void add_data_checksum(Command& data);
void add_data_show(Command& data, CommandContext& context);
void add_data_to_jsonl(Command& data);
void add_data_llava_to_mllm(Command& data);
void add_data_train_bpe(Command& data);
void add_data_render_chat(Command& data, CommandContext& context);

}  // namespace tessera::cli
