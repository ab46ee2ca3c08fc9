// A chat template: parsed, and rendered with a small conversation, or refused.
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/jinja/chat_template.h"
#include "framework/unicode/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": " be é "}, {"role": "user", "content": "a\nb", "n": [1, 2.5, null]},
          {"role": "assistant", "content": "<think>x</think>y", "tool_calls": [{"function": {"name": "f"}}]}])");
  jinja::ChatTemplateLimits limits;
  limits.steps = 20000;
  limits.output_bytes = 1 << 16U;
  limits.created_bytes = 1 << 20U;
  limits.depth = 20;
  jinja::ChatTemplateInput input;
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now = 0;
  try {
    const auto text =
        jinja::ChatTemplate({reinterpret_cast<const char*>(data), size}, "fuzz", limits).render(messages, input);
    if (text.size() > static_cast<std::size_t>(limits.output_bytes) ||
        unicode::first_not_utf8(text) != std::string_view::npos)
      __builtin_trap();
  } catch (const ConfigError&) {
  }
  return 0;
}
