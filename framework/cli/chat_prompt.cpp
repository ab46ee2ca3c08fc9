#include "framework/cli/chat_prompt.h"

#include <ctime>

#include "framework/base/json.h"
#include "framework/base/visible_text.h"
#include "framework/files/input_file.h"
#include "framework/jinja/chat_template.h"
#include "framework/tokenizers/sft_tokenizer.h"

namespace tessera::cli {
namespace {

constexpr const char* expected_messages =
    "expected a JSON list of messages, [{\"role\": \"user\", \"content\": \"...\"}, ...], an object with such a list "
    "as "
    "\"messages\", or a list of such lists or objects";

void check_message(const std::string& where, std::size_t number, const Json& message) {
  const auto has_text = [&](const char* key) { return message.contains(key) && message[key].is_string(); };
  // The content may be a list of parts, or missing beside tool_calls: the template decides.
  if (!message.is_object() || !has_text("role"))
    throw ConfigError(text(where, ": message ", number + 1, " has no \"role\": ", shortened(message.dump()), "; ",
                           expected_messages));
}

bool has_tools(const std::string& where, const Json& given) {
  try {
    return given.is_object() && !tokenizers::SftTokenizer::tools_of(given).is_null();
  } catch (const ConfigError& error) {
    throw ConfigError(text(where, ": ", error.what()));
  }
}

Json checked_conversation(const std::string& where, const Json& given) {
  auto messages = given.is_object() && given.contains("messages") ? Json(given["messages"]) : given;
  if (!messages.is_array() || messages.empty())
    throw ConfigError(text(where, ": has no messages; ", expected_messages));
  if (has_tools(where, given))
    throw ConfigError(text(where, ": has 'tools', which generate does not pass to the chat template; remove them"));
  for (std::size_t i = 0; i < messages.size(); ++i) check_message(where, i, messages[i]);
  return messages;
}

bool has_several(const Json& json) {
  return json.is_array() && !json.empty() &&
         (json[std::size_t{0}].is_array() ||
          (json[std::size_t{0}].is_object() && json[std::size_t{0}].contains("messages")));
}

}  // namespace

std::vector<Json> conversations_in(const std::string& file) {
  std::string why;
  const auto json = parse_json(files::read_input(file, "file of --messages"), &why);
  if (json.is_discarded()) throw ConfigError(text(file, ": is not JSON: ", why, "; ", expected_messages));
  if (!has_several(json)) return {checked_conversation(file, json)};
  std::vector<Json> all;
  for (std::size_t i = 0; i < json.size(); ++i)
    all.push_back(checked_conversation(text(file, ": conversation ", i + 1), json[i]));
  return all;
}

Json conversation_of(const std::string& words) { return Json::array({{{"role", "user"}, {"content", words}}}); }

std::vector<std::int32_t> chat_prompt(const tokenizers::Tokenizer& tokenizer, const Json& messages) {
  const auto source = tokenizer.chat_template();
  if (!source)
    throw ConfigError(
        "generate: the model's tokenizer has no chat template (tokenizer_config.json, chat_template.jinja); leave "
        "--chat "
        "and --messages out and give the whole text as --prompt");
  jinja::ChatTemplateInput input{.add_generation_prompt = true, .special_tokens = {}, .now = std::time(nullptr)};
  for (const auto& token : tokenizer.named_tokens()) input.special_tokens.emplace_back(token.name, token.text);
  std::vector<std::int32_t> ids;
  tokenizer.encoder()->encode_rendered(
      jinja::ChatTemplate(*source, "the model's chat template").render(messages, input), ids);
  return ids;
}

}  // namespace tessera::cli
