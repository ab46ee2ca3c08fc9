#include "framework/instructions/instruction_encoding.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::instructions {
namespace {

using Kind = PromptTemplate::Kind;
using SlotKind = PromptTemplate::Slot::Kind;
using Role = Conversation::Role;

constexpr std::int64_t longest_without_seq_length = 100000;

struct Lengths {
  std::int64_t prompt = 0, answer = 0;
};

// As Python computes it, in double precision.
std::int64_t in_proportion(std::int64_t length, std::int64_t prompt, std::int64_t answer) {
  const auto share = static_cast<double>(answer) / static_cast<double>(prompt + answer);
  return static_cast<std::int64_t>(static_cast<double>(length) * share);
}

// infer_max_len of MindSpeed-LLM's templates.
Lengths keep_one_label(std::int64_t prompt, std::int64_t answer, std::int64_t most) {
  const auto share = prompt + answer == 0 ? 0 : in_proportion(most, prompt, answer);
  const auto most_answer = std::max<std::int64_t>(share, 1);
  return {std::min(prompt, most - std::min(most_answer, answer)), std::min(answer, most_answer)};
}

// _infer_seqlen of MindSpeed-LLM's datasets.
Lengths keep_shorter_half(std::int64_t prompt, std::int64_t answer, std::int64_t most) {
  std::int64_t most_answer = 0;
  if (answer * 2 < most)
    most_answer = most;
  else if (prompt * 2 < most)
    most_answer = most - prompt;
  else if (prompt + answer > 0)
    most_answer = in_proportion(most, prompt, answer);
  const auto kept = std::min(most_answer, answer);
  return {std::min(std::max<std::int64_t>(most - kept, 0), prompt), kept};
}

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
    if (one.name == "eos_token") eos_given = one.id;
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
  }
}

void ConversationEncoder::encode_messages(const Conversation& conversation) {
  const auto& how = options_.prompt_template;
  const auto count = conversation.messages.size();
  messages_.assign(count, {});
  for (std::size_t i = 0; i < count; ++i) {
    auto content = conversation.messages[i].content;
    if (how.kind == Kind::reasoning && i % 2 == 1) {
      if (options_.enable_thinking == false) content = without_thoughts(content, how.thought_words);
      const bool thinks = content.find(how.thought_words[0]) != std::string::npos ||
                          content.find(how.thought_words[1]) != std::string::npos;
      // Empty thoughts: before an answer that is learnt they are learnt too.
      if (!thinks)
        encoder_->encode_rendered(how.thought_words[0] + how.thought_words[1],
                                  messages_[options_.enable_thinking.value_or(false) ? i : i - 1]);
    }
    encode_message(conversation, i, content, messages_[i]);
  }
}

void ConversationEncoder::cut_turns() {
  const auto kind = options_.prompt_template.kind;
  const bool halves = kind == Kind::without_separator || kind == Kind::reasoning;
  const auto most = options_.seq_length.value_or(longest_without_seq_length) - (halves ? 1 : 0);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < messages_.size(); i += 2) {
    if (total >= most) {
      messages_.resize(i);
      return;
    }
    const auto prompt = static_cast<std::int64_t>(messages_[i].size());
    const auto answer = static_cast<std::int64_t>(messages_[i + 1].size());
    const auto kept = (halves ? keep_shorter_half : keep_one_label)(prompt, answer, most - total);
    messages_[i].resize(static_cast<std::size_t>(kept.prompt));
    messages_[i + 1].resize(static_cast<std::size_t>(kept.answer));
    total += kept.prompt + kept.answer;
  }
}

void ConversationEncoder::append_turn(Ids& prompt, Ids& answer, EncodedConversation& out) const {
  Ids mask(prompt.size(), ignored_label);
  if (!out.input_ids.empty() && options_.prompt_template.efficient_eos) {
    if (mask.empty()) mask.push_back(0);  // as there, also when nothing of the prompt is left
    mask.front() = tokens_.eos;
  }
  if (options_.neat_pack) {
    const auto kept = keep_shorter_half(static_cast<std::int64_t>(prompt.size()),
                                        static_cast<std::int64_t>(answer.size()), *options_.seq_length - 1);
    prompt.resize(static_cast<std::size_t>(kept.prompt));
    mask.resize(std::min(mask.size(), static_cast<std::size_t>(kept.prompt)));
    answer.resize(static_cast<std::size_t>(kept.answer));
  }
  out.input_ids.insert(out.input_ids.end(), prompt.begin(), prompt.end());
  out.input_ids.insert(out.input_ids.end(), answer.begin(), answer.end());
  out.labels.insert(out.labels.end(), mask.begin(), mask.end());
  out.labels.insert(out.labels.end(), answer.begin(), answer.end());
}

void ConversationEncoder::encode(const Conversation& conversation, EncodedConversation& out) {
  out.input_ids.clear();
  out.labels.clear();
  encode_messages(conversation);
  cut_turns();
  for (std::size_t i = 0; i < messages_.size(); i += 2) append_turn(messages_[i], messages_[i + 1], out);
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
