#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::instructions {

/// The template of a MindSpeed-LLM `--prompt-type`, which renders a conversation to text: an entry of its
/// templates.json.
struct PromptTemplate {
  struct Slot {
    enum class Kind : std::uint8_t { text, token, bos, eos };
    Kind kind = Kind::text;
    std::string text;  ///< text in which {{content}} and {{idx}} are replaced, or a token
  };
  using Slots = std::vector<Slot>;
  /// `template_class`: how system message, separator, cuts and thoughts are handled. `multimodal`: MindSpeed-MM's,
  /// which cuts as without_separator does, but leaves no place for an end token.
  enum class Kind : std::uint8_t { plain, llama2, without_separator, reasoning, multimodal };

  std::string name;
  Kind kind = Kind::plain;
  Slots user, assistant, system, observation, function;
  Slots separator;  ///< before each prompt except the first
  Slots prefix;     ///< at the beginning of the conversation
  std::string default_system;
  std::vector<std::string> stop_words;
  std::array<std::string, 2> thought_words;
  bool efficient_eos = false;  ///< the eos token of an answer is at the beginning of the next prompt
  bool replace_eos = false;    ///< the first stop word is the eos token
};

/// The template `name` in `file`, a list in the format of MindSpeed-LLM's configs/finetune/templates.json; with an
/// empty `file`, a built-in template. Throws ConfigError if there is no such template, or it uses unsupported features.
PromptTemplate prompt_template(const std::string& name, const std::string& file = "");

/// The template `name` of MindSpeed-MM, and the texts of the tokens that stand for images and videos in it.
struct MultimodalTemplate {
  PromptTemplate text;
  std::string image, video, start, end;  ///< placeholders; the tokens around those of an image or video
};
/// Throws ConfigError, with the names of all, if there is none of this name.
MultimodalTemplate multimodal_template(const std::string& name);

/// The value of `efficient_eos` of a prompt type in MindSpeed-LLM's templates.json, also if its template is not built
/// in. Nothing if that file has no such name.
std::optional<bool> efficient_eos_of(const std::string& name);

/// Names of the built-in templates.
std::vector<std::string> prompt_template_names();

}  // namespace tessera::instructions
