#include <ctime>
#include <iostream>

#include "framework/base/json.h"
#include "framework/cli/data_commands.h"
#include "framework/files/input_file.h"
#include "framework/files/input_stream.h"
#include "framework/files/text_file.h"
#include "framework/jinja/chat_template.h"
#include "framework/log/log.h"
#include "framework/tokenizers/sft_tokenizer.h"

namespace tessera::cli {
namespace {

const log::Logger data_render_chat_logger("data");

struct RenderChat {
  std::string chat_template, input, messages_key = "messages";
  std::vector<std::string> special_tokens;
  bool add_generation_prompt = false, json = false, now = false, skip = false;

  void run() const {
    jinja::ChatTemplateInput given;
    given.add_generation_prompt = add_generation_prompt;
    if (now) given.now = std::time(nullptr);
    for (const auto& word : special_tokens) {
      const auto sign = word.find('=');
      if (sign == std::string::npos || sign == 0)
        throw ConfigError(text("--special-token ", word, ": write NAME=TEXT, for example eos_token=</s>"));
      given.special_tokens.emplace_back(word.substr(0, sign), word.substr(sign + 1));
    }
    const jinja::ChatTemplate rendered(files::read_input(chat_template, "chat template"), chat_template);
    const auto lines = files::read_input(input, "file of --input");
    files::refuse_compressed(input, std::string_view(lines).substr(0, 8));
    std::int64_t number = 0, skipped = 0;
    for (std::size_t begin = 0; begin < lines.size();) {
      const auto end = std::min(lines.find('\n', begin), lines.size());
      const auto line = lines.substr(begin, end - begin);
      begin = end + 1;
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      std::string why;
      const auto object = parse_json(line, &why);
      if (object.is_discarded())
        throw ConfigError(text(input, ":", number, ": is not JSON: ", why, "; correct or remove the line"));
      if (!object.is_object() || !object.contains(messages_key))
        throw ConfigError(text(input, ":", number, ": expected a JSON object with the key \"", messages_key, "\""));
      try {
        given.tools = tokenizers::SftTokenizer::tools_of(object);
        const auto words = rendered.render(object.at(messages_key), given);
        if (json) {
          std::cout << json_quoted(words) << "\n";
        } else {
          std::cout << words << "\n";
        }
      } catch (ConfigError& error) {
        error.during(text("rendering ", input, ":", number));
        if (!skip) throw;
        data_render_chat_logger.warning(error.what());
        ++skipped;
        if (json) std::cout << "null\n";
      }
    }
    if (skipped > 0) data_render_chat_logger.warning(text(skipped, " conversations skipped"));
  }
};

}  // namespace

void add_data_render_chat(Command& data, CommandContext& context) {
  auto work = std::make_shared<RenderChat>();
  auto* command = data.add_subcommand("render-chat", "Print each conversation as the chat template renders it");
  command->add_option("--chat-template", work->chat_template, "File with the template (Jinja)")->required();
  command->add_option("--input", work->input, "JSON lines with the conversations")->required();
  command->add_option("--messages-key", work->messages_key, "Key of the list of messages in a line [messages]");
  command->add_option("--special-token", work->special_tokens,
                      "Special token for the template, NAME=TEXT, for example bos_token=<s>; may be repeated");
  command->add_flag("--add-generation-prompt", work->add_generation_prompt,
                    "Set add_generation_prompt: end with the header of the assistant's message");
  command->add_flag("--allow-date", work->now, "Let strftime_now give the current date (UTC); without it an error");
  command
      ->add_option(
          "--on-error", [work](const std::string& word) { work->skip = word == "skip"; },
          "If the template raises an exception for a conversation: stop, or skip it (with --json, print null) [stop]")
      ->one_of({"stop", "skip"});
  command->add_flag("--json", work->json, "Print each text as a JSON string on one line");
  command->callback([work, &context] {
    context.output.pass_text();
    work->run();
  });
}

}  // namespace tessera::cli
