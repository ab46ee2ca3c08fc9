#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

/// How MindSpeed-LLM makes the text of a conversation for `--prompt-type`: an entry of its templates.json.
struct PromptTemplate {
  struct Slot {
    enum class Kind : std::uint8_t { text, token, bos, eos };
    Kind kind = Kind::text;
    std::string text;  ///< with {{content}} and {{idx}} to be replaced, or the token
  };
  using Slots = std::vector<Slot>;
  /// `template_class`: how system message, separator, cuts and thoughts are handled.
  enum class Kind : std::uint8_t { plain, llama2, without_separator, reasoning };

  std::string name;
  Kind kind = Kind::plain;
  Slots user, assistant, system, observation;
  Slots separator;  ///< before each prompt but the first
  Slots prefix;     ///< at the beginning
  std::string default_system;
  std::vector<std::string> stop_words;
  std::array<std::string, 2> thought_words;
  bool efficient_eos = false;  ///< the eos token of an answer is at the beginning of the next prompt
  bool replace_eos = false;    ///< the first stop word is the eos token
};

/// The template `name` of `file`, a list as MindSpeed-LLM's configs/finetune/templates.json, or with an empty `file` a
/// built-in one. Throws ConfigError if there is no such template, or it has something that is not supported.
PromptTemplate prompt_template(const std::string& name, const std::string& file = "");

/// `efficient_eos` of a prompt type of MindSpeed-LLM's templates.json, whether its template is built in or not. Null:
/// that file has no such name.
std::optional<bool> efficient_eos_of(const std::string& name);

/// Names of the built-in templates.
std::vector<std::string> prompt_template_names();

}  // namespace tessera::data
