#include "framework/tokenizers/hugging_face/normalizer.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/tokenizers/base64.h"
#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/charsmap.h"
#include "framework/tokenizers/hugging_face/growth.h"
#include "framework/unicode/regex.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/unicode_normal.h"
#include "framework/unicode/utf8.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

using unicode::Property;

constexpr std::string_view known_normalizers =
    "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, Sequence, Strip, "
    "StripAccents";

void check_length(std::string_view text, std::size_t most) { check_growth(text.size(), most, "the normalizers"); }

// Replace each character by what `change(code, bytes, out)` appends.
template <class Change>
void change_characters(Normalized& words, const Change& change) {
  std::string out;
  out.reserve(words.text.size());
  std::size_t from_start = 0;
  for (std::size_t at = 0; at < words.text.size();) {
    const auto [code, length] = unicode::character_at(words.text, at);
    change(code, std::string_view(words.text).substr(at, length), out);
    if (at < words.from_start) from_start = out.size();
    at += length;
  }
  words = {std::move(out), from_start, words.most};
  check_length(words.text, words.most);
}

// Replace the text by what `change` makes of it as a whole.
template <class Change>
void change_text(Normalized& words, const Change& change) {
  auto out = change(words.text);
  if (words.from_start > 0) {
    const auto begin = change(words.text.substr(0, words.from_start));
    const bool apart = out.compare(0, begin.size(), begin) == 0;  // else it was joined with what follows
    words.from_start = apart ? begin.size() : out.empty() ? 0 : unicode::character_at(out, 0).length;
  }
  words.text = std::move(out);
  check_length(words.text, words.most);
}

// Takes a text with some of its parts replaced.
class Replaced {
 public:
  explicit Replaced(Normalized& words) : words_(words) {}
  void replace(std::size_t begin, std::size_t end, std::string_view content) {
    keep(begin);
    check_growth(out_.size() + content.size(), words_.most, "the normalizers");
    out_ += content;
    if (end == 0 || end - 1 < words_.from_start) from_start_ = out_.size();
    at_ = end;
  }
  void finish() {
    keep(words_.text.size());
    words_ = {std::move(out_), from_start_, words_.most};
  }

 private:
  void keep(std::size_t end) {
    if (at_ < std::min(end, words_.from_start)) from_start_ = out_.size() + std::min(end, words_.from_start) - at_;
    out_.append(words_.text, at_, end - at_);
  }
  Normalized& words_;
  std::string out_;
  std::size_t at_ = 0, from_start_ = 0;
};

void drop_characters(Normalized& words, Property which) {
  const auto& set = unicode::property(which);
  change_characters(words, [&set](char32_t code, std::string_view bytes, std::string& out) {
    if (!set.has(code)) out += bytes;
  });
}

std::string in_form(std::string_view words, unicode::Form form) {
  return unicode::normalized(words, form, unicode::NormalizationRules::tokenizers);
}

class Normal final : public Normalizer {
 public:
  explicit Normal(unicode::Form form) : form_(form) {}
  void apply(Normalized& words) const override {
    change_text(words, [this](std::string_view text) { return in_form(text, form_); });
  }
  bool keeps_ascii() const override { return true; }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(Normalized& words) const override { change_text(words, unicode::lower_each); }
};

class StripAccents final : public Normalizer {
 public:
  void apply(Normalized& words) const override { drop_characters(words, Property::tokenizers_accent); }
  bool keeps_ascii() const override { return true; }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(Normalized& words) const override {
    auto& text = words.text;
    const auto& spaces = unicode::property(Property::white_space);
    const auto is_space = [&](std::size_t at) { return spaces.has(unicode::character_at(text, at).code); };
    if (right_)
      while (!text.empty() && is_space(unicode::before(text, text.size())))
        text.resize(unicode::before(text, text.size()));
    std::size_t begin = 0;
    if (left_)
      while (begin < text.size() && is_space(begin)) begin += unicode::character_at(text, begin).length;
    words.from_start -= std::min(begin, words.from_start);
    text.erase(0, begin);
    words.from_start = std::min(words.from_start, text.size());
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string words) : words_(std::move(words)) {}
  void apply(Normalized& words) const override {
    if (words.text.empty()) return;
    check_growth(words.text.size() + words_.size(), words.most, "the normalizers");
    words.text.insert(0, words_);
    words.from_start += words_.size();
  }

 private:
  std::string words_;
};

class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(Normalized& words) const override {
    auto found = words.text.find(from_);
    if (found == std::string::npos) return;
    Replaced out(words);
    for (; found != std::string::npos; found = words.text.find(from_, found + from_.size()))
      out.replace(found, found + from_.size(), to_);
    out.finish();
  }

 private:
  std::string from_, to_;
};

class ReplaceRegex final : public Normalizer {
 public:
  ReplaceRegex(unicode::Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  void apply(Normalized& words) const override {
    Replaced out(words);
    unicode::Regex::Finder finder(regex_, words.text);
    while (const auto found = finder.next()) out.replace(found->begin, found->end, to_);
    out.finish();
  }

 private:
  unicode::Regex regex_;
  std::string to_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(Normalized& words) const override {
    change_text(words, [this](std::string_view text) { return spelling_.spell(text); });
  }

 private:
  ByteSpelling spelling_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(CharsMap map) : map_(std::move(map)) {}
  void apply(Normalized& words) const override {
    change_text(words, [this, &words](std::string_view text) { return map_.normalized(text, words.most); });
  }

 private:
  CharsMap map_;
};

class Nmt final : public Normalizer {
 public:
  void apply(Normalized& words) const override {
    change_characters(words, [](char32_t code, std::string_view bytes, std::string& out) {
      const bool control = (code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
                           code == 0x8F || code == 0x9F;
      const bool space = code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                         (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                         code == 0xFEFF || code == 0xFFFD;
      if (!control) out += space ? " " : bytes;
    });
  }
};

class Bert final : public Normalizer {
 public:
  explicit Bert(const JsonValue& entry)
      : clean_(entry.boolean_of("clean_text", true)),
        chinese_(entry.boolean_of("handle_chinese_chars", true)),
        lowercase_(entry.boolean_of("lowercase", true)),
        strip_accents_(entry.boolean_of("strip_accents", lowercase_)) {}

  void apply(Normalized& words) const override {
    if (clean_) clean(words);
    if (chinese_) space_out(words);
    if (strip_accents_) {
      change_text(words, [](std::string_view text) { return in_form(text, unicode::Form::nfd); });
      drop_characters(words, Property::bert_accent);
    }
    if (lowercase_) change_text(words, unicode::lower_each);
  }

 private:
  static void clean(Normalized& words) {
    const auto &removed = unicode::property(Property::bert_removed), &space = unicode::property(Property::white_space);
    change_characters(words, [&](char32_t code, std::string_view bytes, std::string& out) {
      if (!removed.has(code)) out += space.has(code) ? " " : bytes;
    });
  }

  static void space_out(Normalized& words) {
    const auto& chinese = unicode::property(Property::bert_chinese);
    change_characters(words, [&](char32_t code, std::string_view bytes, std::string& out) {
      if (chinese.has(code))
        out.append(" ").append(bytes).append(" ");
      else
        out += bytes;
    });
  }

  bool clean_, chinese_, lowercase_, strip_accents_;
};

class NormalizerMaker {
 public:
  explicit NormalizerMaker(Normalizers& made) : made_(made) {}

  void add(const JsonValue& entry) {
    const auto type = entry.at("type").text();
    check_steps(entry, made_.size() + 1);
    if (type == "Sequence") {
      for (const auto& one : entry.at("normalizers").items()) add(one);
    } else if (type == "NFC") {
      put<Normal>(unicode::Form::nfc);
    } else if (type == "NFD") {
      put<Normal>(unicode::Form::nfd);
    } else if (type == "NFKC") {
      put<Normal>(unicode::Form::nfkc);
    } else if (type == "NFKD") {
      put<Normal>(unicode::Form::nfkd);
    } else if (type == "Lowercase") {
      put<Lowercase>();
    } else if (type == "StripAccents") {
      put<StripAccents>();
    } else if (type == "Strip") {
      put<StripNormalizer>(entry.boolean_of("strip_left", true), entry.boolean_of("strip_right", true));
    } else if (type == "Prepend") {
      put<Prepend>(std::string(entry.at("prepend").text()));
    } else if (type == "Replace") {
      replace(entry);
    } else if (type == "BertNormalizer" || type == "Bert") {
      put<Bert>(entry);
    } else if (type == "ByteLevel") {
      put<ByteLevelNormalizer>();
    } else if (type == "Precompiled") {
      const auto map = entry.at("precompiled_charsmap");
      put<Precompiled>(CharsMap(from_base64(map.text(), map.path()), map.path()));
    } else if (type == "Nmt") {
      put<Nmt>();
    } else {
      entry.unsupported("normalizer", type, known_normalizers);
    }
  }

 private:
  template <class Step, class... Arguments>
  void put(Arguments&&... arguments) {
    made_.push_back(std::make_unique<Step>(std::forward<Arguments>(arguments)...));
  }

  void replace(const JsonValue& entry) {
    std::string content(entry.at("content").text());
    const auto pattern = entry.at("pattern");
    const auto literal = pattern.find("String");
    if (literal && !literal->text().empty())
      put<ReplaceText>(std::string(literal->text()), std::move(content));
    else
      put<ReplaceRegex>(literal ? unicode::Regex::literal("") : unicode::Regex(pattern.at("Regex").text()),
                        std::move(content));
  }

  Normalizers& made_;
};

}  // namespace

Normalizers make_normalizers(const JsonValue& entry) {
  Normalizers made;
  NormalizerMaker(made).add(entry);
  return made;
}

}  // namespace tessera::tokenizers::hugging_face
