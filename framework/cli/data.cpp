#include "framework/cli/data.h"

#include "framework/cli/data_commands.h"

namespace tessera::cli {

void add_data_commands(Command& app, CommandContext& context) {
  auto* data = app.add_subcommand(
      "data",
      "Token files: preprocess, inspect, merge, checksum, show, to-jsonl, llava-to-mllm, train-bpe, render-chat");
  data->require_subcommand();
  add_data_preprocess(*data, context);
  add_data_inspect(*data, context);
  add_data_merge(*data);
  add_data_checksum(*data);
  add_data_show(*data, context);
  add_data_to_jsonl(*data);
  add_data_llava_to_mllm(*data);
  add_data_train_bpe(*data);
  add_data_render_chat(*data, context);
}

}  // namespace tessera::cli
