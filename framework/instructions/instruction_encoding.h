#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/instructions/instruction_handlers.h"
#include "framework/instructions/instruction_templates.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::instructions {

struct InstructionEncoding {
  PromptTemplate prompt_template;
  std::optional<std::int64_t> seq_length;  ///< maximum total tokens of all turns, which are cut to it; null: 100000
  bool neat_pack = false;                  ///< each turn is cut to at most seq_length - 1 tokens
  bool append_eod = false;
  std::optional<bool> enable_thinking;  ///< for templates with thoughts; null: as false, but thoughts are kept
  bool train_on_prompt = false;         ///< prompts have labels too
  /// Only the last answer of a conversation has labels; where it is cut, its last turns have priority. Thoughts of
  /// earlier answers are removed. As in LLaMA-Factory, but without labels for the end tokens of earlier answers.
  bool mask_history = false;
};

/// Ids of special tokens, as MindSpeed-LLM's fix_model_tokenizer sets them for a template.
struct InstructionTokens {
  std::optional<std::int32_t> bos, unknown;
  std::int32_t eos = 0, pad = 0;
  /// Throws ConfigError if the tokenizer lacks a token of the template, which MindSpeed-LLM would add.
  InstructionTokens(const tokenizers::Tokenizer& tokenizer, const PromptTemplate& prompt_template);
};

/// Label of a token without loss.
inline constexpr std::int32_t ignored_label = -100;

struct EncodedConversation {
  std::vector<std::int32_t> input_ids, labels;
  bool cut = false;  ///< tokens of the conversation are missing, because it is longer than seq_length
};

/// Maximum total tokens of all turns if InstructionEncoding::seq_length is null, as in MindSpeed-LLM.
inline constexpr std::int64_t longest_without_seq_length = 100000;

/// Encodes conversations as MindSpeed-LLM's handlers do. Each thread needs its own; `options`, `tokens` and the
/// tokenizer must outlive it.
class ConversationEncoder {
 public:
  ConversationEncoder(const tokenizers::Tokenizer& tokenizer, const InstructionEncoding& options,
                      const InstructionTokens& tokens);
  /// Encodes `conversation` into `out`. Throws ConfigError if a text cannot be encoded, or no tokens remain.
  void encode(const Conversation& conversation, EncodedConversation& out);
  /// Encodes a pair, which is not cut: both sequences begin with the prompt of the chosen answer. Throws as encode().
  void encode_pair(const Conversation& pair, EncodedConversation& chosen, EncodedConversation& rejected);

 private:
  using Ids = std::vector<std::int32_t>;
  void append_slots(const PromptTemplate::Slots& slots, const std::string& content, const std::string& index, Ids& ids);
  void encode_message(const Conversation& conversation, std::size_t number, const std::string& content, Ids& ids);
  void encode_messages(const Conversation& conversation);
  void cut_turns();
  void cut_turn(std::size_t turn, std::int64_t room);
  Ids encode_answer(const Conversation& pair, std::string content, Ids& prompt);
  bool thinks(const std::string& content) const;
  std::string empty_thoughts() const;
  void append_turn(std::size_t turn, EncodedConversation& out);

  const tokenizers::Tokenizer& tokenizer_;
  const InstructionEncoding& options_;
  const InstructionTokens& tokens_;
  std::unique_ptr<tokenizers::Tokenizer::Encoder> encoder_;
  std::vector<Ids> messages_;
};

}  // namespace tessera::instructions
