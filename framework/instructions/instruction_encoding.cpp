#include "framework/instructions/instruction_encoding.h"

#include <algorithm>
#include <numeric>

#include "framework/base/error.h"
#include "framework/instructions/cut_lengths.h"

namespace tessera::instructions {
namespace {

using Kind = PromptTemplate::Kind;
using SlotKind = PromptTemplate::Slot::Kind;
using Role = Conversation::Role;

// infer_max_len of MindSpeed-LLM's templates.
CutLengths keep_one_label(std::int64_t prompt, std::int64_t answer, std::int64_t most) {
  const auto share = prompt + answer == 0 ? 0 : in_proportion(most, answer, prompt + answer);
  const auto most_answer = std::max<std::int64_t>(share, 1);
  return {std::min(prompt, most - std::min(most_answer, answer)), std::min(answer, most_answer)};
}

// Whether the longer one of a prompt and its answer is cut.
bool cuts_the_longer(Kind kind) {
  return kind == Kind::without_separator || kind == Kind::reasoning || kind == Kind::multimodal;
}

// Tokens of seq_length that the turns leave free.
std::int64_t left_free(Kind kind) { return cuts_the_longer(kind) && kind != Kind::multimodal ? 1 : 0; }

void replace_first(std::string& words, std::string_view what, const std::string& by) {
  if (const auto at = words.find(what); at != std::string::npos) words.replace(at, what.size(), by);
}

// The text without the part from the first word to the second, and without line ends at the beginning.
std::string without_thoughts(const std::string& words, const std::array<std::string, 2>& thought) {
  std::string left;
  std::size_t at = 0;
  for (;;) {
    const auto begin = words.find(thought[0], at);
    const auto end = begin == std::string::npos ? begin : words.find(thought[1], begin + thought[0].size());
    if (end == std::string::npos) break;
    left.append(words, at, begin - at);
    at = end + thought[1].size();
  }
  left.append(words, at);
  return left.substr(std::min(left.find_first_not_of('\n'), left.size()));
}

std::int32_t token_of(const tokenizers::Tokenizer& tokenizer, const std::string& token,
                      const PromptTemplate& prompt_template) {
  if (const auto id = tokenizer.token_id(token)) {
    if (tokenizer.splits_special_tokens()) return *id;
    // Only then is it a special token in texts too, as MindSpeed-LLM makes it.
    std::vector<std::int32_t> ids;
    tokenizer.encoder()->encode_rendered("x" + token + "x", ids);
    if (std::find(ids.begin(), ids.end(), *id) != ids.end()) return *id;
  }
  throw ConfigError(text("prompt type ", prompt_template.name, ": the tokenizer has no special token '", token,
                         "', which MindSpeed-LLM would add with a new id; add it to the tokenizer's files "
                         "(transformers: add_special_tokens, save_pretrained), or choose another --prompt-type"));
}

}  // namespace

InstructionTokens::InstructionTokens(const tokenizers::Tokenizer& tokenizer, const PromptTemplate& prompt_template) {
  std::optional<std::int32_t> eos_given, pad_given;
  const auto named = tokenizer.named_tokens();
  for (const auto& one : named) {
    if (one.name == "bos_token") bos = one.id;
    if (one.name == "unk_token") unknown = one.id;
    // A dataset finds the ends of its rows by the token that ends a document, which for SentencePieceTokenizer is
    // another one than the model's eos.
    if (one.name == "eos_token") eos_given = tokenizer.eod();
    if (one.name == "pad_token") pad_given = one.id;
  }
  auto stops = prompt_template.stop_words;
  if (prompt_template.replace_eos) {
    eos_given = token_of(tokenizer, stops.front(), prompt_template);
    stops.erase(stops.begin());
  } else if (!eos_given) {
    eos_given = named.empty() ? tokenizer.eod() : token_of(tokenizer, "<|endoftext|>", prompt_template);
  }
  for (const auto& stop : stops) token_of(tokenizer, stop, prompt_template);
  eos = *eos_given;
  pad = pad_given.value_or(eos);
}

ConversationEncoder::ConversationEncoder(const tokenizers::Tokenizer& tokenizer, const InstructionEncoding& options,
                                         const InstructionTokens& tokens)
    : tokenizer_(tokenizer), options_(options), tokens_(tokens), encoder_(tokenizer.encoder()) {}

// Each slot is encoded alone. What a content has in it is replaced too, as there.
void ConversationEncoder::append_slots(const PromptTemplate::Slots& slots, const std::string& content,
                                       const std::string& index, Ids& ids) {
  for (const auto& slot : slots) {
    switch (slot.kind) {
      case SlotKind::text: {
        auto words = slot.text;
        replace_first(words, "{{content}}", content);
        if (!index.empty()) replace_first(words, "{{idx}}", index);
        if (!words.empty()) encoder_->encode_rendered(words, ids);
        break;
      }
      case SlotKind::token:
        if (const auto id = tokenizer_.token_id(slot.text))
          ids.push_back(*id);
        else if (tokens_.unknown)
          ids.push_back(*tokens_.unknown);
        else
          throw ConfigError(text("prompt type ", options_.prompt_template.name, ": the tokenizer has no token '",
                                 slot.text, "'; choose another --prompt-type"));
        break;
      case SlotKind::bos:
        if (tokens_.bos) ids.push_back(*tokens_.bos);
        break;
      case SlotKind::eos:
        ids.push_back(tokens_.eos);
        break;
    }
  }
}

void ConversationEncoder::encode_message(const Conversation& conversation, std::size_t number,
                                         const std::string& content, Ids& ids) {
  const auto& how = options_.prompt_template;
  const auto& system = conversation.system.empty() ? how.default_system : conversation.system;
  std::string before;
  if (number == 0) {
    append_slots(how.prefix, "", "", ids);
    if (!system.empty() && how.kind == Kind::llama2) {
      before = how.system[0].text;
      replace_first(before, "{{content}}", system);
    } else if (!system.empty()) {
      append_slots(how.system, system, "", ids);
    }
  } else if (number % 2 == 0 && how.kind != Kind::without_separator) {
    append_slots(how.separator, "", "", ids);
  }
  const bool numbered = how.kind != Kind::llama2;
  switch (conversation.messages[number].role) {
    case Role::user:
      return append_slots(how.user, before + content, numbered ? std::to_string(number / 2) : "", ids);
    case Role::assistant:
      return append_slots(how.assistant, content, "", ids);
    case Role::observation:
      return append_slots(how.observation, content, "", ids);
    case Role::function:
      return append_slots(how.function, content, "", ids);
  }
}

bool ConversationEncoder::thinks(const std::string& content) const {
  const auto& words = options_.prompt_template.thought_words;
  return content.find(words[0]) != std::string::npos || content.find(words[1]) != std::string::npos;
}

std::string ConversationEncoder::empty_thoughts() const {
  const auto& words = options_.prompt_template.thought_words;
  return words[0] + words[1];
}

void ConversationEncoder::encode_messages(const Conversation& conversation) {
  const auto& how = options_.prompt_template;
  const auto count = conversation.messages.size();
  messages_.assign(count, {});
  for (std::size_t i = 0; i < count; ++i) {
    auto content = conversation.messages[i].content;
    if (how.kind == Kind::reasoning && i % 2 == 1) {
      const bool is_history = options_.mask_history && i + 1 < count;
      if (options_.enable_thinking == false || is_history) content = without_thoughts(content, how.thought_words);
      // Empty thoughts: before an answer that is learned they are learned too.
      if (!is_history && !thinks(content))
        encoder_->encode_rendered(empty_thoughts(), messages_[options_.enable_thinking.value_or(false) ? i : i - 1]);
    }
    encode_message(conversation, i, content, messages_[i]);
  }
}

// A prompt and its answer, cut to `room` tokens.
void ConversationEncoder::cut_turn(std::size_t turn, std::int64_t room) {
  const auto kind = options_.prompt_template.kind;
  auto& prompt = messages_[2 * turn];
  auto& answer = messages_[2 * turn + 1];
  const auto kept = (cuts_the_longer(kind) ? cut_lengths : keep_one_label)(
      static_cast<std::int64_t>(prompt.size()), static_cast<std::int64_t>(answer.size()), room - left_free(kind));
  prompt.resize(static_cast<std::size_t>(kept.prompt));
  answer.resize(static_cast<std::size_t>(kept.answer));
}

void ConversationEncoder::cut_turns() {
  const auto most = options_.seq_length.value_or(longest_without_seq_length);
  const auto filled = most - left_free(options_.prompt_template.kind);
  const auto turns = messages_.size() / 2;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < turns; ++i) {
    const auto turn = options_.mask_history ? turns - 1 - i : i;
    if (total >= filled) {
      const auto at = [this](std::size_t message) { return messages_.begin() + static_cast<std::ptrdiff_t>(message); };
      options_.mask_history ? messages_.erase(at(0), at(2 * turn + 2)) : messages_.erase(at(2 * turn), at(2 * turns));
      return;
    }
    cut_turn(turn, most - total);
    total += static_cast<std::int64_t>(messages_[2 * turn].size() + messages_[2 * turn + 1].size());
  }
}

void ConversationEncoder::append_turn(std::size_t turn, EncodedConversation& out) {
  auto& prompt = messages_[2 * turn];
  auto& answer = messages_[2 * turn + 1];
  Ids prompt_labels = options_.train_on_prompt ? prompt : Ids(prompt.size(), ignored_label);
  if (!out.input_ids.empty() && options_.prompt_template.efficient_eos && !options_.train_on_prompt &&
      !options_.mask_history) {
    if (prompt_labels.empty()) prompt_labels.push_back(0);  // as there, also when nothing of the prompt is left
    prompt_labels.front() = tokens_.eos;
  }
  if (options_.neat_pack) {
    const auto kept = cut_lengths(static_cast<std::int64_t>(prompt.size()), static_cast<std::int64_t>(answer.size()),
                                  *options_.seq_length - 1);
    prompt.resize(static_cast<std::size_t>(kept.prompt));
    prompt_labels.resize(std::min(prompt_labels.size(), static_cast<std::size_t>(kept.prompt)));
    answer.resize(static_cast<std::size_t>(kept.answer));
  }
  out.input_ids.insert(out.input_ids.end(), prompt.begin(), prompt.end());
  out.input_ids.insert(out.input_ids.end(), answer.begin(), answer.end());
  out.labels.insert(out.labels.end(), prompt_labels.begin(), prompt_labels.end());
  const bool is_history = options_.mask_history && 2 * turn + 2 < messages_.size();
  if (is_history)
    out.labels.insert(out.labels.end(), answer.size(), ignored_label);
  else
    out.labels.insert(out.labels.end(), answer.begin(), answer.end());
}

// The ids of the last answer of a pair. Empty thoughts that are not learned go to the end of `prompt`.
ConversationEncoder::Ids ConversationEncoder::encode_answer(const Conversation& pair, std::string content,
                                                            Ids& prompt) {
  const auto& how = options_.prompt_template;
  Ids ids;
  if (how.kind == Kind::reasoning) {
    if (options_.enable_thinking == false) content = without_thoughts(content, how.thought_words);
    if (!thinks(content))
      encoder_->encode_rendered(empty_thoughts(), options_.enable_thinking.value_or(false) ? ids : prompt);
  }
  encode_message(pair, pair.messages.size() - 1, content, ids);
  if (how.efficient_eos) ids.push_back(tokens_.eos);
  return ids;
}

void ConversationEncoder::encode_pair(const Conversation& pair, EncodedConversation& chosen,
                                      EncodedConversation& rejected) {
  const auto& how = options_.prompt_template;
  Ids prompt, unused;
  for (std::size_t i = 0; i + 1 < pair.messages.size(); ++i) {
    const auto& content = pair.messages[i].content;
    const bool is_answer = i % 2 == 1;
    encode_message(pair, i,
                   how.kind == Kind::reasoning && is_answer ? without_thoughts(content, how.thought_words) : content,
                   prompt);
  }
  const auto better = encode_answer(pair, pair.messages.back().content, prompt);
  const auto worse = encode_answer(pair, pair.rejected, unused);
  const auto join = [&](const Ids& answer, EncodedConversation& out) {
    out.input_ids = prompt;
    out.input_ids.insert(out.input_ids.end(), answer.begin(), answer.end());
    out.labels.assign(prompt.size(), ignored_label);
    out.labels.insert(out.labels.end(), answer.begin(), answer.end());
    if (out.input_ids.empty())
      throw ConfigError("neither the prompt nor the answer has a token; correct or remove the row");
  };
  join(better, chosen);
  join(worse, rejected);
}

void ConversationEncoder::encode(const Conversation& conversation, EncodedConversation& out) {
  out.input_ids.clear();
  out.labels.clear();
  encode_messages(conversation);
  const auto add_size = [](std::size_t sum, const Ids& message) { return sum + message.size(); };
  const auto whole = std::accumulate(messages_.begin(), messages_.end(), std::size_t{0}, add_size);
  cut_turns();
  for (std::size_t turn = 0; 2 * turn < messages_.size(); ++turn) append_turn(turn, out);
  out.cut = out.input_ids.size() < whole;
  const auto end_with = [&](std::int32_t id) {
    out.input_ids.push_back(id);
    out.labels.push_back(id);
  };
  if (options_.prompt_template.efficient_eos) end_with(tokens_.eos);
  if (out.input_ids.empty())
    throw ConfigError("neither the prompt nor the answer has a token; correct or remove the row");
  if (options_.append_eod) end_with(tokens_.eos);
}

}  // namespace tessera::instructions
