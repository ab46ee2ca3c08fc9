#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/chat_template/chat_template.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

/// How conversations become tokens, and of which tokens the loss counts.
struct SftFormat {
  /// nemotron-h-aligned, nemotron-nano-v2, identity or default: Megatron-LM's `--sft-tokenizer-prompt-format`.
  std::string prompt_format = "nemotron-h-aligned";
  /// Template of the format `default`: its text or the name of its file; null: the tokenizer's own.
  std::optional<std::string> chat_template;
  /// Null: as in Megatron-LM, where the loss counts all tokens with the format `default` and answers with the others.
  std::optional<bool> answers_only;
};

/// Megatron-LM's SFTTokenizer: a conversation to ids and targets. Const and safe to share between threads.
class SftTokenizer {
 public:
  static constexpr std::int32_t ignored = -1;  ///< target of a token that is not learnt; -100 in Megatron-LM

  /// Throws ConfigError if there is no tokenizer, format or template of this name, if the template is not implemented,
  /// or if the tokenizer lacks the format's padding token. `tokenizer` must outlive it.
  SftTokenizer(const Tokenizer* tokenizer, const SftFormat& format);
  ~SftTokenizer();

  /// The id that pads samples; targets that are equal to it are masked.
  std::int32_t pad() const { return pad_; }

  /// Append the ids of `conversation`, an array of messages, to `tokens`, and to `targets` the same ids, or `ignored`
  /// for tokens of prompts. Throws ConfigError if the template refuses the conversation, if a role is unknown, an
  /// answer is empty or follows neither user nor tool, or if the template renders a message differently alone than in
  /// the conversation, so that its tokens cannot be told apart.
  void encode(const nlohmann::ordered_json& conversation, std::vector<std::int32_t>& tokens,
              std::vector<std::int32_t>& targets) const;

 private:
  enum class Loss { all, turns, answers };
  using Ids = std::vector<std::int32_t>;
  Ids ids(const std::string& text) const;
  Ids render(const nlohmann::ordered_json& messages) const;
  std::string words(const nlohmann::ordered_json& messages, bool generation_prompt) const;
  void mask_turns(const nlohmann::ordered_json& conversation, const Ids& tokens, std::span<std::int32_t> targets) const;
  void mask_prompts(const nlohmann::ordered_json& conversation, const Ids& tokens, const std::string& all,
                    std::span<std::int32_t> targets) const;

  const Tokenizer* tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  ChatTemplateInput input_;
  Loss loss_ = Loss::all;
  std::size_t answer_prefix_ = 0;  // tokens of an answer's beginning that are not learnt
  std::int32_t pad_ = 0;
  std::string eos_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Tokenizer::Encoder>> idle_;  // encoders that no thread uses
};

}  // namespace tessera::data
