#include "framework/tokenizers/hugging_face/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>

#include "framework/base/error.h"
#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/hugging_face/growth.h"
#include "framework/unicode/regex.h"
#include "framework/unicode/unicode_classes.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

using unicode::Property;

constexpr std::string_view known_pre_tokenizers =
    "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation, Sequence, Split, "
    "Whitespace, WhitespaceSplit";
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Expressions of many models besides GPT-2's; the first ones keep line ends, the others cut there.
constexpr std::size_t expressions_that_keep_lines = 2;
constexpr std::array<std::string_view, 8> known_expressions = {
    R"(\p{N}{1,3})",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    R"([\r\n])",
    R"([!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const JsonValue& value) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> words{
      {{"Removed", Behavior::removed},
       {"Isolated", Behavior::isolated},
       {"MergedWithPrevious", Behavior::merged_with_previous},
       {"MergedWithNext", Behavior::merged_with_next},
       {"Contiguous", Behavior::contiguous}}};
  for (const auto& [word, behavior] : words)
    if (value.text() == word) return behavior;
  value.unsupported("behavior", value.text(), "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// Takes the parts of a text, matches and what is between, from left to right, and passes on what the behavior makes.
class BehaviorSplitter {
 public:
  BehaviorSplitter(Piece piece, Behavior behavior, bool invert, const Visit<Piece>& sink)
      : piece_(piece), behavior_(behavior), invert_(invert), sink_(sink) {}

  void match(std::size_t begin, std::size_t end) {
    if (begin > at_) part(begin, false);
    at_ = begin;
    part(end, true);
  }
  void finish() {
    if (at_ < piece_.text.size()) part(piece_.text.size(), false);
    flush();
  }

 private:
  void part(std::size_t end, bool matched) {
    matched = matched != invert_;
    const auto begin = std::exchange(at_, end);
    switch (behavior_) {
      case Behavior::removed:
        if (!matched) emit(begin, end);
        return;
      case Behavior::isolated:
        emit(begin, end);
        return;
      case Behavior::contiguous:
        if (matched != before_) flush();
        break;
      case Behavior::merged_with_previous:
        if (!matched || before_) flush();
        break;
      case Behavior::merged_with_next:
        if (matched || !before_) flush();
        break;
    }
    if (!held_) held_begin_ = begin;
    held_ = true;
    held_end_ = end;
    before_ = matched;
  }
  void flush() {
    if (held_) emit(held_begin_, held_end_);
    held_ = false;
  }
  void emit(std::size_t begin, std::size_t end) const { sink_(piece_.part(begin, end)); }

  Piece piece_;
  Behavior behavior_;
  bool invert_;
  const Visit<Piece>& sink_;
  std::size_t at_ = 0, held_begin_ = 0, held_end_ = 0;
  bool held_ = false, before_ = false;
};

template <class Test>
void split_characters(Piece piece, Behavior behavior, const Visit<Piece>& sink, const Test& test) {
  BehaviorSplitter parts(piece, behavior, false, sink);
  for (std::size_t at = 0; at < piece.text.size();) {
    const auto [code, length] = unicode::character_at(piece.text, at);
    if (test(code)) parts.match(at, at + length);
    at += length;
  }
  parts.finish();
}

class ByCharacter final : public PreTokenizer {
 public:
  ByCharacter(std::function<bool(char32_t)> test, Behavior behavior) : test_(std::move(test)), behavior_(behavior) {}
  void split(Piece piece, std::string&, const Visit<Piece>& sink) const override {
    split_characters(piece, behavior_, sink, test_);
  }
  AtLineEnd at_line_end() const override {
    if (behavior_ == Behavior::merged_with_previous || behavior_ == Behavior::merged_with_next)
      return AtLineEnd::unknown;
    return test_('\n') && behavior_ != Behavior::contiguous ? AtLineEnd::cut : AtLineEnd::kept;
  }

 private:
  std::function<bool(char32_t)> test_;
  Behavior behavior_;
};

// \w+|[^\w\s]+ are the pieces.
class Whitespace final : public PreTokenizer {
 public:
  AtLineEnd at_line_end() const override { return AtLineEnd::cut; }
  void split(Piece piece, std::string&, const Visit<Piece>& sink) const override {
    const auto &word = unicode::property(Property::rust_word), &space = unicode::property(Property::white_space);
    const auto kind = [&](char32_t code) { return word.has(code) ? 1 : space.has(code) ? 0 : 2; };
    std::size_t begin = 0, at = 0;
    int before_kind = 0;
    const auto emit = [&] {
      if (before_kind != 0) sink(piece.part(begin, at));
    };
    while (at < piece.text.size()) {
      const auto [code, length] = unicode::character_at(piece.text, at);
      if (const auto now = kind(code); now != before_kind) {
        emit();
        begin = at;
        before_kind = now;
      }
      at += length;
    }
    emit();
  }
};

class SplitByRegex final : public PreTokenizer {
 public:
  SplitByRegex(unicode::Regex regex, Behavior behavior, bool invert, AtLineEnd at_line_end = AtLineEnd::unknown)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert), at_line_end_(at_line_end) {}
  AtLineEnd at_line_end() const override {
    return behavior_ == Behavior::isolated && !invert_ ? at_line_end_ : AtLineEnd::unknown;
  }
  void split(Piece piece, std::string&, const Visit<Piece>& sink) const override {
    BehaviorSplitter parts(piece, behavior_, invert_, sink);
    unicode::Regex::Finder finder(regex_, piece.text);
    while (const auto match = finder.next()) parts.match(match->begin, match->end);
    parts.finish();
  }

 private:
  unicode::Regex regex_;
  Behavior behavior_;
  bool invert_;
  AtLineEnd at_line_end_;
};

// GPT-2's expression matches every text without a gap, and next_piece is much faster than a regular expression.
class SplitAsGpt2 final : public PreTokenizer {
 public:
  AtLineEnd at_line_end() const override { return AtLineEnd::cut; }
  void split(Piece piece, std::string&, const Visit<Piece>& sink) const override {
    for (std::size_t at = 0; at < piece.text.size();) {
      const auto size = unicode::next_piece(classes(), piece.text, at);
      sink(piece.part(at, at + size));
      at += size;
    }
  }

 private:
  static const unicode::UnicodeClasses& classes() {
    static const unicode::UnicodeClasses all(unicode::Version::v16);
    return all;
  }
};

class PrefixSpace final : public PreTokenizer {
 public:
  void split(Piece piece, std::string& spelt, const Visit<Piece>& sink) const override {
    if (!piece.text.empty() && piece.text[0] != ' ') {
      spelt.clear();
      spelt += ' ';
      piece.text = spelt += piece.text;
      ++piece.from_start;
    }
    sink(piece);
  }
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  void split(Piece piece, std::string& spelt, const Visit<Piece>& sink) const override {
    spelt.clear();
    std::size_t from_start = 0;
    for (std::size_t at = 0; at < piece.text.size(); ++at) {
      spelt += characters_[static_cast<unsigned char>(piece.text[at])];
      if (at < piece.from_start) from_start = spelt.size();
    }
    sink({spelt, from_start});
  }

 private:
  std::array<std::string, 256> characters_ = [] {
    std::array<std::string, 256> all;
    const ByteSpelling spelling;
    for (std::size_t b = 0; b < 256; ++b) all[b] = unicode::to_utf8(spelling.of(static_cast<unsigned char>(b)));
    return all;
  }();
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  enum class Scheme { first, never, always };
  MetaspacePreTokenizer(std::string replacement, Scheme scheme, bool splits)
      : replacement_(std::move(replacement)), scheme_(scheme), splits_(splits) {}
  bool depends_on_start() const override { return scheme_ == Scheme::first; }

  void split(Piece piece, std::string& spelt, const Visit<Piece>& sink) const override {
    spelt.clear();
    std::size_t from_start = 0;
    for (std::size_t at = 0; at < piece.text.size(); ++at) {
      if (piece.text[at] == ' ')
        spelt += replacement_;
      else
        spelt += piece.text[at];
      if (at < piece.from_start) from_start = spelt.size();
    }
    const bool wanted = scheme_ == Scheme::always || (scheme_ == Scheme::first && from_start > 0);
    if (wanted && spelt.compare(0, replacement_.size(), replacement_) != 0) {
      spelt.insert(0, replacement_);
      from_start += replacement_.size();
    }
    const Piece whole{spelt, from_start};
    if (!splits_) return sink(whole);
    BehaviorSplitter parts(whole, Behavior::merged_with_next, false, sink);
    for (auto at = spelt.find(replacement_); at != std::string::npos;
         at = spelt.find(replacement_, at + replacement_.size()))
      parts.match(at, at + replacement_.size());
    parts.finish();
  }

 private:
  std::string replacement_;
  Scheme scheme_;
  bool splits_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}
  void split(Piece piece, std::string&, const Visit<Piece>& sink) const override {
    std::size_t begin = 0, at = 0, count = 0;
    while (at < piece.text.size()) {
      at += unicode::character_at(piece.text, at).length;
      if (++count % length_ != 0 && at < piece.text.size()) continue;
      sink(piece.part(begin, at));
      begin = at;
    }
  }

 private:
  std::size_t length_;
};

class PreTokenizerMaker {
 public:
  explicit PreTokenizerMaker(PreTokenizers& made) : made_(made) {}

  void byte_level(const JsonValue& entry, bool add_prefix_space) {
    if (add_prefix_space) put<PrefixSpace>();
    if (entry.boolean_of("use_regex", true)) put<SplitAsGpt2>();
    made_.ends_in_bytes = true;
    put<ByteLevelPreTokenizer>();
  }

  void add(const JsonValue& entry) {
    made_.ends_in_bytes = false;
    check_steps(entry, made_.steps.size() + 1);
    const auto type = entry.at("type").text();
    if (type == "Sequence") {
      for (const auto& one : entry.at("pretokenizers").items()) add(one);
    } else if (type == "ByteLevel") {
      byte_level(entry, entry.boolean_of("add_prefix_space", true));
    } else if (type == "Metaspace") {
      metaspace(entry);
    } else if (type == "Split") {
      split(entry);
    } else if (type == "Digits") {
      by_character(in(Property::rust_numeric),
                   entry.boolean_of("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
    } else if (type == "Punctuation") {
      const auto behavior = entry.find("behavior");
      by_character(in(Property::tokenizers_punctuation), behavior ? behavior_of(*behavior) : Behavior::isolated);
    } else if (type == "WhitespaceSplit") {
      by_character(in(Property::white_space), Behavior::removed);
    } else if (type == "Whitespace") {
      put<Whitespace>();
    } else if (type == "BertPreTokenizer") {
      by_character(in(Property::white_space), Behavior::removed);
      by_character(in(Property::tokenizers_punctuation), Behavior::isolated);
    } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
      const auto delimiter = one_character(entry.at("delimiter"));
      by_character([delimiter](char32_t code) { return code == delimiter; }, Behavior::removed);
    } else if (type == "FixedLength") {
      const auto length = entry.find("length");
      const auto value = length ? length->integer() : 5;
      if (value == 0) length->refuse("expected 1 or more");
      put<FixedLength>(static_cast<std::size_t>(value));
    } else {
      entry.unsupported("pre_tokenizer", type, known_pre_tokenizers);
    }
  }

 private:
  template <class Step, class... Arguments>
  void put(Arguments&&... arguments) {
    made_.steps.push_back(std::make_unique<Step>(std::forward<Arguments>(arguments)...));
  }
  void by_character(std::function<bool(char32_t)> test, Behavior behavior) {
    put<ByCharacter>(std::move(test), behavior);
  }
  static std::function<bool(char32_t)> in(Property which) {
    const auto& set = unicode::property(which);
    return [&set](char32_t code) { return set.has(code); };
  }

  static AtLineEnd at_line_end_of(std::string_view expression) {
    const auto& all = known_expressions;
    const auto at = static_cast<std::size_t>(std::find(all.begin(), all.end(), expression) - all.begin());
    if (at == all.size()) return AtLineEnd::unknown;
    return at < expressions_that_keep_lines ? AtLineEnd::kept : AtLineEnd::cut;
  }

  static char32_t one_character(const JsonValue& value) {
    const auto words = value.text();
    if (words.empty() || unicode::character_at(words, 0).length != words.size()) value.refuse("expected one character");
    return unicode::character_at(words, 0).code;
  }

  void split(const JsonValue& entry) {
    const auto behavior = behavior_of(entry.at("behavior"));
    const bool invert = entry.boolean_of("invert", false);
    const auto pattern = entry.at("pattern");
    if (const auto literal = pattern.find("String")) {
      put<SplitByRegex>(unicode::Regex::literal(literal->text()), behavior, invert);
      return;
    }
    const auto expression = pattern.at("Regex").text();
    if (expression == gpt2_pattern && (behavior == Behavior::isolated || (behavior == Behavior::removed && invert)))
      put<SplitAsGpt2>();
    else
      put<SplitByRegex>(unicode::Regex(expression), behavior, invert, at_line_end_of(expression));
  }

  void metaspace(const JsonValue& entry) {
    const auto replacement = entry.at("replacement");
    one_character(replacement);
    auto scheme = MetaspacePreTokenizer::Scheme::always;
    if (const auto word = entry.find("prepend_scheme")) {
      if (word->text() == "first")
        scheme = MetaspacePreTokenizer::Scheme::first;
      else if (word->text() == "never")
        scheme = MetaspacePreTokenizer::Scheme::never;
      else if (word->text() != "always")
        word->unsupported("prepend_scheme", word->text(), "first, never, always");
    }
    if (!entry.boolean_of("add_prefix_space", true)) {
      if (entry.find("prepend_scheme") && scheme != MetaspacePreTokenizer::Scheme::never)
        entry.refuse("add_prefix_space false contradicts prepend_scheme; write 'never' there, or leave one out");
      scheme = MetaspacePreTokenizer::Scheme::never;
    }
    put<MetaspacePreTokenizer>(std::string(replacement.text()), scheme, entry.boolean_of("split", true));
  }

  PreTokenizers& made_;
};

}  // namespace

PreTokenizers make_pre_tokenizers(const JsonValue& entry, bool model_takes_bytes,
                                  std::optional<bool> add_prefix_space) {
  PreTokenizers made;
  PreTokenizerMaker maker(made);
  if (add_prefix_space && entry.at("type").text() == "ByteLevel")
    maker.byte_level(entry, *add_prefix_space);
  else
    maker.add(entry);
  made.ends_in_bytes = made.ends_in_bytes && model_takes_bytes;
  if (made.ends_in_bytes) made.steps.pop_back();
  return made;
}

}  // namespace tessera::tokenizers::hugging_face
