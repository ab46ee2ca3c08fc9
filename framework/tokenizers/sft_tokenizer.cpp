#include "framework/tokenizers/sft_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/files/input_file.h"

namespace tessera::tokenizers {
namespace {

// The formats that Megatron-LM has by name. The texts are formats that models were trained with.
struct NamedFormat {
  const char* name;
  const char* pad;
  std::size_t answer_prefix;
  const char* chat_template;
};
constexpr NamedFormat formats[] = {
    {"nemotron-h-aligned", "<SPECIAL_233>", 0,
     "{% for m in messages %}"
     "{% if m.role == 'system' %}{{ '<SPECIAL_10>System\\n' + m.content.strip() + '\\n' }}"
     "{% elif m.role == 'user' %}{{ '<SPECIAL_11>User\\n' + m.content.strip() + '\\n<SPECIAL_11>Assistant\\n' }}"
     "{% elif m.role == 'assistant' %}{{ m.content.strip() + '\\n' }}{% endif %}{% endfor %}"},
    {"nemotron-nano-v2", "<unk>", 3,
     "{% for m in messages %}{% set plain = m.content.replace('/think', '').replace('/no_think', '').strip() %}"
     "{% if m.role == 'system' %}{{ '<SPECIAL_10>System\\n' + plain + '\\n' }}"
     "{% elif m.role == 'user' %}{{ '<SPECIAL_11>User\\n' + plain + '\\n' }}"
     "{% elif m.role == 'assistant' %}{{ '<SPECIAL_11>Assistant\\n' + m.content.strip() + '\\n<SPECIAL_12>\\n' }}"
     "{% endif %}{% endfor %}"},
    {"identity", "<unk>", 0, "{% for m in messages %}{{ m.content }}{% endfor %}"},
};

constexpr const char* without_turns =
    "choose sft_tokenizer_prompt_format default with a chat_template, or give sft_answers_only: false to compute the "
    "loss on all tokens";

std::string in_lower_case(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return word;
}

Json first_of(const Json& conversation, std::size_t count) {
  auto first = Json::array();
  for (std::size_t i = 0; i < count; ++i) first.push_back(conversation[i]);
  return first;
}

std::string role_of(const Json& message) {
  const auto role = message.find("role");
  if (role == nullptr || !role->is_string()) throw ConfigError("a message has no role");
  return in_lower_case(role->get<std::string>());
}

std::optional<std::int32_t> named(const Tokenizer& tokenizer, std::string_view name) {
  for (const auto& token : tokenizer.named_tokens())
    if (token.name == name) return token.id;
  return std::nullopt;
}

// NumPy's allclose: large ids may differ by one.
bool all_close(std::span<const std::int32_t> one, std::span<const std::int32_t> other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](double a, double b) { return std::abs(a - b) <= 1e-8 + 1e-5 * std::abs(b); });
}

bool ends_documents(const Tokenizer& tokenizer, std::int32_t id) {
  if (named(tokenizer, "eos_token") == id || tokenizer.special_ids().eos == id) return true;
  try {
    return tokenizer.eod() == id;
  } catch (const ConfigError&) {  // the tokenizer has no such token
    return false;
  }
}

jinja::ChatTemplate own_template(const Tokenizer& tokenizer, const std::optional<std::string>& given) {
  if (given) {
    if (given->find("{{") != std::string::npos || given->find("{%") != std::string::npos)
      return jinja::ChatTemplate(*given, "dataset_config.chat_template");
    return jinja::ChatTemplate(files::read_input(*given, "chat template"), *given);
  }
  if (const auto own = tokenizer.chat_template()) return jinja::ChatTemplate(*own, "the tokenizer's chat template");
  throw ConfigError(
      "sft_tokenizer_prompt_format default uses the tokenizer's chat template, and this tokenizer has none; give "
      "chat_template, the text of a template or the name of its file");
}

}  // namespace

SftTokenizer::SftTokenizer(const Tokenizer* tokenizer, const SftFormat& format)
    : tokenizer_(tokenizer), mask_history_(format.mask_history) {
  if (!tokenizer_)
    throw ConfigError("dataset_type sft reads text, and tokenizer_type is none; choose another tokenizer_type");
  for (const auto& token : tokenizer_->named_tokens()) {
    input_.special_tokens.emplace_back(token.name, token.text);
    if (token.name == "eos_token") eos_ = token.text;
  }
  if (format.prompt_format == "default") {
    template_ = std::make_unique<jinja::ChatTemplate>(own_template(*tokenizer_, format.chat_template));
    const auto pad = named(*tokenizer_, "pad_token");
    has_pad_ = pad.has_value();
    pad_ = has_pad_ ? *pad : tokenizer_->eod();
    // Any other token can end a turn in a template of the user's, also one that the tokenizer does not call eos_token.
    ignores_pad_in_text_ = named(*tokenizer_, "unk_token") == pad_ && !ends_documents(*tokenizer_, pad_);
    loss_ = format.answers_only.value_or(false) ? Loss::answers : Loss::all;
    check_loss();
    return;
  }
  const auto* known = std::find_if(std::begin(formats), std::end(formats),
                                   [&](const auto& one) { return format.prompt_format == one.name; });
  if (known == std::end(formats))
    throw ConfigError(text("sft_tokenizer_prompt_format '", format.prompt_format,
                           "' is not known; known are nemotron-h-aligned, nemotron-nano-v2, identity and default"));
  if (format.chat_template)
    throw ConfigError(text("sft_tokenizer_prompt_format ", known->name,
                           " has its own template; with chat_template give the format default"));
  template_ = std::make_unique<jinja::ChatTemplate>(known->chat_template, known->name);
  answer_prefix_ = known->answer_prefix;
  loss_ = format.answers_only.value_or(true) ? Loss::turns : Loss::all;
  check_loss();
  auto pad = tokenizer_->token_id(known->pad);
  if (!pad) pad = named(*tokenizer_, "unk_token");
  if (!pad)
    throw ConfigError(text("sft_tokenizer_prompt_format ", known->name, " pads with the token ", known->pad,
                           ", which the tokenizer does not have; choose the format default with a chat_template"));
  pad_ = *pad;
  ignores_pad_in_text_ = !ends_documents(*tokenizer_, pad_);
}

std::string SftTokenizer::padding_note() const {
  if (has_pad_ && !ends_documents(*tokenizer_, pad_)) return "";
  return text(has_pad_ ? "the tokenizer's padding token is its end-of-text token "
                       : "the tokenizer has no padding token, so samples are padded with its end-of-document token ",
              pad_, " (", tokenizer_->piece(pad_),
              "): padding has no loss, but that token is learned where it ends a "
              "turn. Megatron-LM would mask it there too, and its model would not learn to stop");
}

SftTokenizer::~SftTokenizer() = default;

SftTokenizer::Ids SftTokenizer::ids(const std::string& text) const {
  std::unique_ptr<Tokenizer::Encoder> encoder;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      encoder = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!encoder) encoder = tokenizer_->encoder();
  Ids out;
  encoder->encode_rendered(text, out);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(encoder));
  return out;
}

std::string SftTokenizer::words(const Json& messages, const Json& tools, bool generation_prompt) const {
  auto input = input_;
  input.tools = tools;
  input.add_generation_prompt = generation_prompt;
  return template_->render(messages, input);
}

SftTokenizer::Ids SftTokenizer::render(const Json& messages) const { return ids(words(messages, {}, false)); }

void SftTokenizer::check_loss() const {
  if (mask_history_ && loss_ == Loss::all)
    throw ConfigError(
        "mask_history counts the last answer only, but the loss is on all tokens; set sft_answers_only: true, or "
        "mask_history: false");
}

namespace {

// Tokens without loss separate answers.
void keep_last_answer(std::span<std::int32_t> targets) {
  const auto is_learned = [](std::int32_t target) { return target != SftTokenizer::ignored; };
  const auto end = std::find_if(targets.rbegin(), targets.rend(), is_learned);
  const auto begin = std::find_if_not(end, targets.rend(), is_learned);
  std::fill(targets.begin(), begin.base(), SftTokenizer::ignored);
}

}  // namespace

Json SftTokenizer::tools_of(const Json& row) {
  const auto* tools = row.find("tools");
  if (tools == nullptr || tools->is_null()) return {};
  if (tools->is_string() ? tools->string().empty() : tools->empty()) return {};
  if (!tools->is_array() || !std::all_of(tools->begin(), tools->end(), [](const auto& one) { return one.is_object(); }))
    throw ConfigError(
        "'tools' is not a list of objects; give a list such as [{\"type\": \"function\", \"function\": {...}}], or "
        "remove it");
  return *tools;
}

void SftTokenizer::encode(const Json& conversation, Ids& tokens, Ids& targets, const Json& tools,
                          std::size_t most) const {
  if (!tools.is_null() && !template_->has_tools())
    throw ConfigError(
        "the conversation has 'tools', but the chat template does not render them; remove them, or choose "
        "sft_tokenizer_prompt_format default with a chat_template that reads `tools`");
  const auto all = words(conversation, tools, false);
  const auto own = ids(all);
  const auto before = targets.size();
  tokens.insert(tokens.end(), own.begin(), own.end());
  targets.insert(targets.end(), own.begin(), own.end());
  const auto span = std::span(targets).subspan(before);
  if (loss_ == Loss::turns) mask_turns(conversation, own, span);
  // Which answer is the last one is known only at the end.
  if (mask_history_) most = std::numeric_limits<std::size_t>::max();
  if (loss_ == Loss::answers) mask_prompts(conversation, tools, most, own, all, span);
  if (mask_history_) keep_last_answer(span);
}

void SftTokenizer::mask_turns(const Json& conversation, const Ids& tokens, std::span<std::int32_t> targets) const {
  std::size_t at = 0;
  for (std::size_t turn = 0; turn < conversation.size(); ++turn) {
    const auto& message = conversation[turn];
    const auto role = role_of(message);
    if (role == "assistant") {
      const auto content = message.find("content");
      if (content == nullptr || !content->is_string() || content->string().empty())
        throw ConfigError(text("message ", turn + 1, ": the answer of the assistant is empty"));
      // The message before the first one is the last one, as in Megatron-LM.
      const auto previous = role_of(conversation[turn == 0 ? conversation.size() - 1 : turn - 1]);
      if (previous != "user" && previous != "tool")
        throw ConfigError(text("message ", turn + 1, ": the assistant answers a message of role '", previous,
                               "'; expected user or tool"));
    } else if (role != "system" && role != "user" && role != "tool") {
      throw ConfigError(
          text("message ", turn + 1, ": the role '", role, "' is unknown; known are system, user, tool and assistant"));
    }
    const auto own = render(Json::array({message}));
    const auto end = std::min(at + own.size(), tokens.size());
    if (end - at != own.size() || !all_close(std::span(tokens).subspan(at, end - at), own))
      throw ConfigError(text("message ", turn + 1,
                             ": rendered alone it has other tokens than in the conversation, so the tokens of answers "
                             "cannot be told apart; ",
                             without_turns));
    const auto masked = role == "assistant" ? std::min(answer_prefix_, own.size()) : own.size();
    // An answer's prefix is masked also where it is longer than the answer.
    const auto last = role == "assistant" ? std::min(at + answer_prefix_, targets.size()) : at + masked;
    std::fill(targets.begin() + static_cast<std::ptrdiff_t>(at), targets.begin() + static_cast<std::ptrdiff_t>(last),
              ignored);
    at = end;
  }
  if (at != tokens.size())
    throw ConfigError(text("the conversation has ", tokens.size(), " tokens, but its messages rendered alone have ", at,
                           ", so the tokens of answers cannot be told apart; ", without_turns));
}

namespace {

[[noreturn]] void refuse_answer(std::size_t turn, bool prompt_joins, bool answer_joins) {
  if (prompt_joins)
    throw ConfigError(text("message ", turn + 1,
                           ": the last token of the prompt joins with the answer, so the tokens of the answer cannot "
                           "be told apart; let the generation prompt of the chat template end without the blank, or "
                           "begin the answer with it"));
  if (answer_joins)
    throw ConfigError(text("message ", turn + 1,
                           ": the last token of the answer joins with the text behind it, so the tokens of the answer "
                           "cannot be told apart; let the chat template end an answer with a special token"));
  throw ConfigError(
      text("message ", turn + 1, ": the chat template or the tokenizer renders what is before the end of this answer ",
           "differently when more messages follow, so its tokens cannot be told apart; leave sft_answers_only out, "
           "or give the conversation as several"));
}

}  // namespace

void SftTokenizer::mask_prompts(const Json& conversation, const Json& tools, std::size_t most, const Ids& tokens,
                                const std::string& all, std::span<std::int32_t> targets) const {
  std::vector<bool> learnt(tokens.size(), false);
  const auto begins = [&](const Ids& part, std::size_t count) {
    return count <= tokens.size() &&
           std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count), tokens.begin());
  };
  for (std::size_t turn = 0; turn < conversation.size(); ++turn) {
    if (role_of(conversation[turn]) != "assistant") continue;
    if (turn == 0) throw ConfigError("the conversation begins with the assistant; expected system or user");
    const auto before = words(first_of(conversation, turn), tools, true);
    const auto prompt = ids(before);
    if (prompt.size() >= most && begins(prompt, most)) break;  // this answer and later ones are cut off
    auto whole = words(first_of(conversation, turn + 1), tools, false);
    if (all.compare(0, whole.size(), whole) != 0 && !eos_.empty() && whole.size() >= eos_.size() &&
        whole.compare(whole.size() - eos_.size(), eos_.size(), eos_) == 0)
      whole.resize(whole.size() - eos_.size());  // some templates end every text, not every answer, with eos_token
    const auto end = ids(whole);
    const bool prompt_begins = begins(prompt, prompt.size()), end_begins = begins(end, end.size());
    if (!prompt_begins || !end_begins || end.size() < prompt.size())
      refuse_answer(turn, !prompt_begins && all.starts_with(before),
                    prompt_begins && !end_begins && all.starts_with(whole));
    std::fill(learnt.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
              learnt.begin() + static_cast<std::ptrdiff_t>(end.size()), true);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!learnt[i]) targets[i] = ignored;
}

}  // namespace tessera::tokenizers
