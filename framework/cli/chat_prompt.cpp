#include "framework/cli/chat_prompt.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "framework/base/json.h"
#include "framework/base/visible_text.h"
#include "framework/files/input_file.h"
#include "framework/jinja/chat_template.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* expected_messages =
    "expected a JSON list of messages, [{\"role\": \"user\", \"content\": \"...\"}, ...], or an object with such a "
    "list "
    "as \"messages\"";

void check_message(const std::string& file, std::size_t number, const Json& message) {
  const auto has_text = [&](const char* key) { return message.contains(key) && message[key].is_string(); };
  // The content may be a list of parts, or missing beside tool_calls: the template decides.
  if (!message.is_object() || !has_text("role"))
    throw ConfigError(text(file, ": message ", number + 1, " has no \"role\": ",
                           shortened(message.dump(-1, ' ', false, Json::error_handler_t::replace)), "; ",
                           expected_messages));
}

}  // namespace

Json conversation_in(const std::string& file) {
  auto json = parse_json<Json>(files::read_input(file, "file of --messages"));
  if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
  if (!json.is_array() || json.empty())
    throw ConfigError(text(file, json.is_discarded() ? ": is not JSON; " : ": has no messages; ", expected_messages));
  for (std::size_t i = 0; i < json.size(); ++i) check_message(file, i, json[i]);
  return json;
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
