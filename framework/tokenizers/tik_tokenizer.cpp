// TikTokenizer: byte-pair encoding by ranks, as Megatron-LM's CustomTikTokenizer. Special tokens have the first ids;
// inside a text they are ordinary text, but not in one that a chat template rendered.

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <set>
#include <unordered_map>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/files/input_file.h"
#include "framework/options/limits.h"
#include "framework/tokenizers/base64.h"
#include "framework/tokenizers/ranked_bytes.h"
#include "framework/tokenizers/tiktoken_words.h"
#include "framework/tokenizers/tokenizer.h"
#include "framework/tokenizers/word_cache.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {

options::Words<TiktokenPattern> words(TiktokenPattern) {
  return {{"v1", TiktokenPattern::v1}, {"v2", TiktokenPattern::v2}};
}

namespace {

struct TikOptions {
  std::string tokenizer_model;
  std::optional<TiktokenPattern> tiktoken_pattern;
  std::optional<std::int64_t> vocab_size;
  std::int64_t tiktoken_num_special_tokens = 1000;
  std::optional<std::vector<std::string>> tiktoken_special_tokens;
};

void describe(options::Schema<TikOptions>& s) {
  s.when_changed(options::Change::weights);
  s.option("tokenizer_model", &TikOptions::tokenizer_model,
           "Path of the vocabulary (.json): a list of {rank, token_bytes, token_str}, in the order of the ranks.")
      .when_changed(options::Change::file);
  s.option("tiktoken_pattern", &TikOptions::tiktoken_pattern,
           "Regular expression that cuts text into words: v1 or v2 of Megatron-LM. Required with TikTokenizer.");
  s.option("vocab_size", &TikOptions::vocab_size,
           "Number of token ids, special tokens included; the vocabulary is cut to it. null: 131072.")
      .at_least(1)
      .at_most(options::most_tokens_known);
  s.option("tiktoken_num_special_tokens", &TikOptions::tiktoken_num_special_tokens,
           "Number of ids reserved for special tokens, the first ids.")
      .at_least(0)
      .at_most(options::most_tokens_known);
  s.option(
      "tiktoken_special_tokens", &TikOptions::tiktoken_special_tokens,
      "Names of the first special tokens, among them <unk>, <s> and </s>; the others are <SPECIAL_3>, <SPECIAL_4>, ... "
      "null: [<unk>, <s>, </s>].");
}

constexpr std::int64_t default_vocab_size = std::int64_t{1} << 17;

// Python's repr() of a text, with the tables of Python 3.11: part of the tokenizer's identity.
std::string python_repr(const std::string& of) {
  using unicode::bit;
  using unicode::Category;
  const char quote = of.find('\'') != std::string::npos && of.find('"') == std::string::npos ? '"' : '\'';
  std::string to(1, quote);
  const auto& categories = unicode::categories(unicode::Version::v14);
  for (const auto code : unicode::to_code_points(of)) {
    const bool hidden = code != ' ' && (bit(categories.of(code)) & (unicode::others | unicode::separators)) != 0;
    if (code == '\\' || code == static_cast<unsigned char>(quote)) {
      to += '\\';
      to += static_cast<char>(code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      to += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (hidden) {
      char digits[16];
      std::snprintf(digits, sizeof digits,
                    code < 0x100     ? "\\x%02x"
                    : code < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                    static_cast<unsigned>(code));
      to += digits;
    } else {
      unicode::append_code_point(to, code);
    }
  }
  return to + quote;
}

// Adds the first `most` tokens of the file.
void read_ranks(const std::string& file, std::size_t most, RankedBytes& ranks) {
  const auto list = parse_json(files::read_input(file, "vocabulary"));
  if (!list.is_array())
    throw ConfigError(text(file, ": is not a vocabulary of TikTokenizer; expected a JSON list of objects with rank, ",
                           "token_bytes and token_str"));
  for (std::size_t i = 0; i < std::min(most, list.size()); ++i) {
    const auto& entry = list[i];
    const auto where = text(file, ": entry ", i, " (from 0)");
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("rank") || !entry.contains("token_str") ||
        !entry.contains("token_bytes") || !entry["token_bytes"].is_string())
      throw ConfigError(text(where, " is ", entry.dump(),
                             "; expected an object with rank, token_bytes (base64) and token_str alone"));
    if (entry["rank"] != i)
      throw ConfigError(text(where, " has the rank ", entry["rank"].dump(), "; expected ", i,
                             ": entries stand in the order of their ranks"));
    const auto token = from_base64(entry["token_bytes"].string(), where);
    if (i < 256 && token != std::string(1, static_cast<char>(i)))
      throw ConfigError(text(where, " is not the byte ", i, "; expected the 256 bytes as the first tokens, in order"));
    if (!ranks.add(token)) throw ConfigError(text(where, " has the bytes of an earlier one; each token stands once"));
  }
}

// Finds special tokens in a text. There may be a million of them, but of few lengths.
class SpecialNames {
 public:
  // Keeps views of `names`; an empty name is in no text.
  explicit SpecialNames(const std::vector<std::string>& names) {
    for (std::size_t id = 0; id < names.size(); ++id) {
      if (names[id].empty()) continue;
      ids_.emplace(names[id], static_cast<std::int32_t>(id));
      lengths_.insert(names[id].size());
      begins_[static_cast<unsigned char>(names[id].front())] = true;
    }
  }

  std::optional<std::int32_t> id_of(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  struct Hit {
    std::size_t at, length;
    std::int32_t id;
  };
  // The first one in `text` from `at` on; of several at one position the longest.
  std::optional<Hit> next(std::string_view text, std::size_t at) const {
    for (; at < text.size(); ++at) {
      if (!begins_[static_cast<unsigned char>(text[at])]) continue;
      for (const auto length : lengths_) {
        if (length > text.size() - at) continue;
        if (const auto id = id_of(text.substr(at, length))) return Hit{at, length, *id};
      }
    }
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::set<std::size_t, std::greater<>> lengths_;
  std::array<bool, 256> begins_{};
};

class TikEncoder final : public Tokenizer::Encoder {
 public:
  TikEncoder(const RankedBytes& ranks, TiktokenPattern pattern, const SpecialNames& special, std::int32_t shift,
             const std::string& file)
      : ranks_(ranks), pattern_(pattern), special_(special), shift_(shift), file_(file) {}

  // Special tokens become their ids; each part between them is encoded by itself.
  void encode_rendered(std::string_view text, std::vector<std::int32_t>& ids) override {
    std::size_t at = 0;
    while (const auto hit = special_.next(text, at)) {
      encode(text.substr(at, hit->at - at), ids);
      ids.push_back(hit->id);
      at = hit->at + hit->length;
    }
    encode(text.substr(at), ids);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    for (std::size_t at = 0; at < text.size();) {
      const auto word = text.substr(at, next_tiktoken_word(pattern_, text, at));
      at += word.size();
      if (!WordCache::takes(word)) {
        ranks_.encode(word, shift_, file_, ids);
      } else if (!cache_.append(word, ids)) {
        const auto before = ids.size();
        ranks_.encode(word, shift_, file_, ids);
        cache_.remember(word, std::span(ids).subspan(before));
      }
    }
  }

 private:
  const RankedBytes& ranks_;
  TiktokenPattern pattern_;
  const SpecialNames& special_;
  std::int32_t shift_;
  const std::string& file_;
  WordCache cache_;
};

class TikTokenizer final : public Tokenizer {
 public:
  explicit TikTokenizer(const TikOptions& options) : options_(options) {
    special_ = options.tiktoken_special_tokens.value_or(std::vector<std::string>{"<unk>", "<s>", "</s>"});
    const auto count = static_cast<std::size_t>(options.tiktoken_num_special_tokens);
    constexpr std::size_t most_special = 1U << 24U;  // each has a name in memory
    if (count > most_special)
      throw ConfigError(text("tiktoken_num_special_tokens is ", count, "; expected at most ", most_special));
    if (special_.size() > count || options.tiktoken_num_special_tokens >= vocab_size())
      throw ConfigError(text("tiktoken_num_special_tokens is ", count, "; expected at least the ", special_.size(),
                             " tokens of tiktoken_special_tokens and fewer than vocab_size, ", vocab_size()));
    for (auto id = special_.size(); id < count; ++id) special_.push_back(text("<SPECIAL_", id, ">"));
    unknown_ = special("<unk>");
    ids_.bos = special("<s>");
    ids_.eos = special("</s>");
    auto sorted = special_;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      throw ConfigError(text("tiktoken_special_tokens: '", *twice, "' stands twice; give each token once"));
    names_.emplace(special_);
    const auto room = static_cast<std::size_t>(vocab_size()) - count;
    read_ranks(options.tokenizer_model, room, ranks_);
    if (ranks_.size() != room)
      throw ConfigError(text(options.tokenizer_model, ": has ", ranks_.size(), " tokens; vocab_size ", vocab_size(),
                             " less tiktoken_num_special_tokens ", count, " asks for ", room, "; set vocab_size to ",
                             ranks_.size() + count));
  }

  std::unique_ptr<Encoder> encoder() const override {
    return std::make_unique<TikEncoder>(ranks_, *options_.tiktoken_pattern, *names_,
                                        static_cast<std::int32_t>(special_.size()), options_.tokenizer_model);
  }
  std::int64_t vocab_size() const override { return options_.vocab_size.value_or(default_vocab_size); }
  std::int32_t eod() const override { return *ids_.eos; }
  SpecialIds special_ids() const override { return ids_; }
  std::vector<NamedToken> named_tokens() const override {
    return {{"bos_token", "<s>", *ids_.bos}, {"eos_token", "</s>", *ids_.eos}, {"unk_token", "<unk>", unknown_}};
  }
  std::optional<std::int32_t> token_id(std::string_view token) const override { return names_->id_of(token); }
  bool may_be_cut_at_lines() const override { return true; }
  Identity identity() const override {
    std::string names = "None";
    if (options_.tiktoken_special_tokens) {
      names = "[";
      for (const auto& name : *options_.tiktoken_special_tokens)
        names += (names.size() > 1 ? ", " : "") + python_repr(name);
      names += "]";
    }
    return {"CustomTikTokenizer",
            {options_.tokenizer_model},
            {{"pattern", std::string(expression(*options_.tiktoken_pattern))},
             {"vocab_size", options_.vocab_size ? std::to_string(*options_.vocab_size) : "None"},
             {"num_special_tokens", std::to_string(options_.tiktoken_num_special_tokens)},
             {"special_tokens", names}}};
  }
  std::string piece(std::int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return std::string(unicode::replacement_character);
    const auto at = static_cast<std::size_t>(id);
    return at < special_.size() ? special_[at] : ranks_.token(at - special_.size());
  }
  std::vector<SourceFile> files() const override { return {{"tokenizer_model", options_.tokenizer_model}}; }

 private:
  std::int32_t special(const std::string& name) const {
    const auto found = std::find(special_.begin(), special_.end(), name);
    if (found == special_.end())
      throw ConfigError(text("tiktoken_special_tokens has no ", name, "; expected <unk>, <s> and </s> among them"));
    return static_cast<std::int32_t>(found - special_.begin());
  }

  TikOptions options_;
  std::vector<std::string> special_;
  std::optional<SpecialNames> names_;
  SpecialIds ids_;
  std::int32_t unknown_ = 0;
  RankedBytes ranks_;
};

std::unique_ptr<Tokenizer> make_tik_tokenizer(const TikOptions& options) {
  const auto& file = options.tokenizer_model;
  if (file.size() < 5 || file.compare(file.size() - 5, 5, ".json") != 0)
    throw ConfigError(text("tokenizer_type TikTokenizer: tokenizer_model is '", file,
                           "'; expected the path of a vocabulary whose name ends in .json"));
  if (!options.tiktoken_pattern)
    throw ConfigError("tokenizer_type TikTokenizer needs tiktoken_pattern; set it to v1 or v2");
  return std::make_unique<TikTokenizer>(options);
}

}  // namespace

void register_tik_tokenizer(TokenizerRegistry& registry) {
  registry.add("TikTokenizer", make_tik_tokenizer, "Byte-pair encoding of tiktoken from a JSON list of tokens.");
}

}  // namespace tessera::tokenizers
