#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/json.h"

namespace tessera::jinja {

/// Limits of one rendering. A template that exceeds one of them causes a ConfigError.
struct ChatTemplateLimits {
  std::int64_t steps = 50'000'000;             ///< executed nodes, passes of loops, and 64 bytes of text that is read
  std::int64_t output_bytes = 64LL << 20U;     ///< length of the result and of any intermediate text or list
  std::int64_t created_bytes = 1024LL << 20U;  ///< all intermediate texts and lists together
  std::int64_t source_bytes = 16LL << 20U;     ///< length of the template
  int depth = 100;                             ///< nested macro calls, and nested values
};

/// The input of a template besides the messages.
struct ChatTemplateInput {
  bool add_generation_prompt = false;
  /// bos_token, eos_token, ...: only those that the tokenizer has.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  /// The variable `tools`: a list of objects as in apply_chat_template(tools=...); null: None.
  Json tools = {};
  /// Seconds since 1970, in UTC, that strftime_now formats; null: a template that calls strftime_now is an error.
  std::optional<std::int64_t> now;
};

/// A chat template: the part of the Jinja language that published chat templates use, rendered to the same text as
/// `apply_chat_template(tokenize=False)` of Hugging Face Transformers 5 (Jinja 3.1 with trim_blocks and lstrip_blocks).
/// `documents` is None. Unimplemented features cause a ConfigError that names the feature and its line;
/// docs/data.md lists the implemented ones.
///
/// Const and thread-safe.
class ChatTemplate {
 public:
  /// Parses `source` (UTF-8). `name` begins every error message: the file of the template, or another identification.
  /// Throws ConfigError if the template has a syntax error or uses an unimplemented feature.
  ChatTemplate(std::string_view source, std::string name, const ChatTemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders a conversation to text. `messages` is an array of objects. As in Transformers, members of a message that
  /// are null are dropped, and `reasoning_content` is also available as `thinking`. Throws ConfigError if the template
  /// rejects the conversation (raise_exception), fails, uses an unimplemented feature, or exceeds a limit.
  std::string render(const Json& messages, const ChatTemplateInput& input = {}) const;

  /// Whether the source has the word `tools`: without it the text does not depend on the tools.
  bool has_tools() const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace tessera::jinja
