#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/jinja/chat_template.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

/// How conversations are encoded, and which tokens count in the loss.
struct SftFormat {
  /// nemotron-h-aligned, nemotron-nano-v2, identity or default: Megatron-LM's `--sft-tokenizer-prompt-format`.
  std::string prompt_format = "nemotron-h-aligned";
  /// Chat template for the format `default`: its text or the path of its file; null: the tokenizer's own template.
  std::optional<std::string> chat_template;
  /// Only tokens of answers count in the loss. Null: as in Megatron-LM, where all tokens count for the format
  /// `default`, and answers for the others.
  std::optional<bool> answers_only;
  /// Only tokens of the last answer of a conversation count in the loss: LLaMA-Factory's `mask_history`.
  bool mask_history = false;
};

/// Megatron-LM's SFTTokenizer: encodes a conversation to ids and targets. Const and thread-safe.
class SftTokenizer {
 public:
  static constexpr std::int32_t ignored = -1;  ///< target of a token without loss; -100 in Megatron-LM

  /// Throws ConfigError if `tokenizer` is null, a format or template of this name does not exist, the template is not
  /// implemented, the tokenizer lacks the format's padding token, or the history is masked while all tokens count in
  /// the loss. `tokenizer` must outlive this object.
  SftTokenizer(const Tokenizer* tokenizer, const SftFormat& format);
  ~SftTokenizer();

  /// The id that pads samples. Labels of padding have no loss.
  std::int32_t pad() const { return pad_; }
  /// Whether also the tokens of a text that are equal to `pad` have no loss, as in Megatron-LM. False if that token can
  /// end a turn: then a model could not learn to stop.
  bool ignores_pad_in_text() const { return ignores_pad_in_text_; }
  /// What a user should know about the padding token; empty: nothing.
  std::string padding_note() const;

  /// Appends the ids of `conversation`, an array of messages, to `tokens`, and to `targets` the same ids, or `ignored`
  /// for tokens without loss. Throws ConfigError if the template rejects the conversation, if a role is unknown, an
  /// answer is empty or follows neither user nor tool, or if the template renders a message alone differently than in
  /// the conversation, so that its tokens cannot be identified.
  ///
  ///   tools  template variable of this name, see tools_of(); not null with a template that has none: ConfigError
  ///   most   number of targets that are used: with the loss on answers only, later ones may be `ignored` instead
  void encode(const Json& conversation, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets,
              const Json& tools = {}, std::size_t most = std::numeric_limits<std::size_t>::max()) const;

  /// The member `tools` of a row of conversations: a list of objects; null if the row has none. Throws ConfigError if
  /// it is anything else.
  static Json tools_of(const Json& row);

 private:
  enum class Loss { all, turns, answers };
  using Ids = std::vector<std::int32_t>;
  void check_loss() const;
  Ids ids(const std::string& text) const;
  Ids render(const Json& messages) const;
  std::string words(const Json& messages, const Json& tools, bool generation_prompt) const;
  void mask_turns(const Json& conversation, const Ids& tokens, std::span<std::int32_t> targets) const;
  void mask_prompts(const Json& conversation, const Json& tools, std::size_t most, const Ids& tokens,
                    const std::string& all, std::span<std::int32_t> targets) const;

  const Tokenizer* tokenizer_;
  std::unique_ptr<jinja::ChatTemplate> template_;
  jinja::ChatTemplateInput input_;
  Loss loss_ = Loss::all;
  bool mask_history_ = false;
  std::size_t answer_prefix_ = 0;  // tokens at the beginning of an answer that have no loss
  std::int32_t pad_ = 0;
  bool ignores_pad_in_text_ = false, has_pad_ = true;
  std::string eos_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Tokenizer::Encoder>> idle_;  // encoders that no thread is using
};

}  // namespace tessera::tokenizers
