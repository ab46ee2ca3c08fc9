#include "framework/tokenizers/hugging_face/decoder.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/tokenizers/bpe.h"
#include "framework/tokenizers/hugging_face/growth.h"
#include "framework/unicode/regex.h"
#include "framework/unicode/utf8.h"
#include "framework/unicode/utf8_fast.h"

namespace tessera::tokenizers::hugging_face {
namespace {

constexpr std::string_view known_decoders =
    "BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece";

std::string replaced(std::string_view words, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (auto found = words.find(from); found != std::string_view::npos; found = words.find(from, at)) {
    out.append(words, at, found - at).append(to);
    at = found + from.size();
  }
  return out.append(words, at);
}

// Steps that see token after token.
class TokenStep : public DecodeStep {
 public:
  void finish() override {
    flush_chunks();
    end();
    next().finish();
  }

 protected:
  virtual void end() {}
};

class Replace final : public TokenStep {
 public:
  Replace(std::shared_ptr<const unicode::Regex> regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}
  void token(std::string words) override { next().token(piece(std::move(words))); }
  std::string piece(std::string words) const override {
    std::string out;
    std::size_t at = 0;
    unicode::Regex::Finder finder(*regex_, words);
    while (const auto found = finder.next()) {
      out.append(words, at, found->begin - at).append(content_);
      check_growth(out.size(), most_decoded, "the decoders");
      at = found->end;
    }
    return out.append(words, at);
  }

 private:
  std::shared_ptr<const unicode::Regex> regex_;
  std::string content_;
};

// <0xE4> represents a byte. Consecutive tokens of this form that are not valid UTF-8 become one U+FFFD each.
class ByteFallback final : public TokenStep {
 public:
  void token(std::string words) override {
    if (const auto byte = byte_of(words)) {
      bytes_ += *byte;
      return;
    }
    end();
    next().token(std::move(words));
  }
  std::string piece(std::string words) const override {
    const auto byte = byte_of(words);
    return byte ? std::string(1, *byte) : words;
  }

 private:
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const auto lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  }
  static std::optional<char> byte_of(std::string_view words) {
    if (words.size() != 6 || words.substr(0, 3) != "<0x" || words[5] != '>') return std::nullopt;
    const auto low = digit(words[4]);
    if (words[3] == '+' && low >= 0) return static_cast<char>(low);  // Rust reads a sign
    const auto high = digit(words[3]);
    return high < 0 || low < 0 ? std::nullopt : std::optional(static_cast<char>(16 * high + low));
  }
  void end() override {
    const auto bytes = std::exchange(bytes_, {});
    if (bytes.empty()) return;
    if (unicode::first_not_utf8(bytes) == std::string_view::npos) {
      next().token(bytes);
      return;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) next().token(std::string(unicode::replacement_character));
  }
  std::string bytes_;
};

class Fuse final : public DecodeStep {
 public:
  void token(std::string words) override { next().chunk(words); }
  void chunk(std::string_view words) override { next().chunk(words); }
  bool joins() const override { return true; }
};

class ByteLevel final : public DecodeStep {
 public:
  void token(std::string words) override {
    held_ += piece(std::move(words));
    next().chunk(unicode::take_complete(held_));
  }
  void chunk(std::string_view words) override { collected_ += words; }
  void finish() override {
    if (takes_chunks()) token(std::exchange(collected_, {}));
    next().chunk(unicode::with_replacements(std::exchange(held_, {})));
    next().finish();
  }
  bool joins() const override { return true; }
  // A token with a character outside the spelling is kept unchanged.
  std::string piece(std::string words) const override {
    auto bytes = spelling_.bytes(words);
    return spelling_.spell(bytes) == words ? bytes : words;
  }

 private:
  ByteSpelling spelling_;
  std::string held_, collected_;
};

// Takes up to `start` characters `content` off the beginning of each token, and up to `stop` off its end.
class StripDecoder final : public DecodeStep {
 public:
  StripDecoder(std::string content, std::size_t start, std::size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void token(std::string words) override {
    auto rest = begin_cut(words, start_);
    for (std::size_t i = 0;
         i < stop_ && rest.size() >= content_.size() && rest.substr(rest.size() - content_.size()) == content_; ++i)
      rest.remove_suffix(content_.size());
    next().token(std::string(rest));
  }

  void chunk(std::string_view words) override {
    held_ += words;
    std::string_view rest = held_;
    if (!begun_) {
      std::size_t cut = 0;
      while (cut_ + cut < start_ && rest.substr(0, content_.size()) == content_) {
        rest.remove_prefix(content_.size());
        ++cut;
      }
      cut_ += cut;
      begun_ = !rest.empty() || cut_ == start_;
    }
    std::string_view certain = rest;  // the last `stop` characters may still be cut
    for (std::size_t i = 0; i < stop_ && !certain.empty(); ++i) {
      const auto last = unicode::before(certain, certain.size());
      if (certain.substr(last) != content_) break;
      certain = certain.substr(0, last);
    }
    std::string waiting(rest.substr(certain.size()));
    next().chunk(certain);
    held_ = std::move(waiting);
  }
  // What waits at the end is to be cut.
  void finish() override { next().finish(); }
  bool joins() const override { return takes_chunks(); }

 private:
  std::string_view begin_cut(std::string_view words, std::size_t most) const {
    for (std::size_t i = 0; i < most && words.substr(0, content_.size()) == content_; ++i)
      words.remove_prefix(content_.size());
    return words;
  }
  std::string content_, held_;
  std::size_t start_, stop_, cut_ = 0;
  bool begun_ = false;
};

class MetaspaceDecoder final : public TokenStep {
 public:
  MetaspaceDecoder(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  void token(std::string words) override {
    next().token(replaced(words, replacement_, std::exchange(first_, false) && prepends_ ? "" : " "));
  }
  std::string piece(std::string words) const override { return replaced(words, replacement_, " "); }

 private:
  std::string replacement_;
  bool prepends_, first_ = true;
};

class WordPieceDecoder final : public TokenStep {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void token(std::string words) override {
    if (!std::exchange(first_, false)) {
      if (words.compare(0, prefix_.size(), prefix_) == 0)
        words.erase(0, prefix_.size());
      else
        words = " " + words;
    }
    next().token(cleanup_ ? cleaned(std::move(words)) : std::move(words));
  }
  std::string piece(std::string words) const override {
    return words.compare(0, prefix_.size(), prefix_) == 0 ? words.substr(prefix_.size()) : words;
  }

 private:
  static std::string cleaned(std::string words) {
    constexpr std::pair<std::string_view, std::string_view> rules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : rules) words = replaced(words, from, to);
    return words;
  }
  std::string prefix_;
  bool cleanup_, first_ = true;
};

// The suffix of the last token ends the text, that of the others is a blank.
class EndOfWord final : public TokenStep {
 public:
  explicit EndOfWord(std::string suffix) : suffix_(std::move(suffix)) {}
  void token(std::string words) override {
    if (held_) next().token(replaced(*held_, suffix_, " "));
    held_ = std::move(words);
  }
  std::string piece(std::string words) const override { return replaced(words, suffix_, " "); }

 private:
  void end() override {
    if (held_) next().token(replaced(*std::exchange(held_, std::nullopt), suffix_, ""));
  }
  std::string suffix_;
  std::optional<std::string> held_;
};

class JoinByBlanks final : public TokenStep {
 public:
  void token(std::string words) override {
    if (!std::exchange(first_, false)) words = " " + words;
    next().token(std::move(words));
  }

 private:
  bool first_ = true;
};

class DecoderMaker {
 public:
  explicit DecoderMaker(DecodeSteps& made) : made_(made) {}

  void add(const JsonValue& entry) {
    const auto type = entry.at("type").text();
    check_steps(entry, made_.size() + 1);
    if (type == "Sequence") {
      for (const auto& one : entry.at("decoders").items()) add(one);
    } else if (type == "ByteLevel") {
      put<ByteLevel>();
    } else if (type == "ByteFallback") {
      put<ByteFallback>();
    } else if (type == "Fuse") {
      put<Fuse>();
    } else if (type == "Replace") {
      const auto pattern = entry.at("pattern");
      const auto literal = pattern.find("String");
      put<Replace>(std::make_shared<const unicode::Regex>(literal ? unicode::Regex::literal(literal->text())
                                                                  : unicode::Regex(pattern.at("Regex").text())),
                   std::string(entry.at("content").text()));
    } else if (type == "Strip") {
      put<StripDecoder>(one_character(entry.at("content")), static_cast<std::size_t>(entry.at("start").integer()),
                        static_cast<std::size_t>(entry.at("stop").integer()));
    } else if (type == "Metaspace") {
      const auto scheme = entry.text_of("prepend_scheme", "always");
      put<MetaspaceDecoder>(one_character(entry.at("replacement")),
                            scheme != "never" && entry.boolean_of("add_prefix_space", true));
    } else if (type == "WordPiece") {
      put<WordPieceDecoder>(entry.text_of("prefix", "##"), entry.boolean_of("cleanup", true));
    } else if (type == "BPEDecoder") {
      put<EndOfWord>(non_empty(entry.at("suffix")));
    } else {
      entry.unsupported("decoder", type, known_decoders);
    }
  }

 private:
  template <class Step, class... Arguments>
  void put(Arguments... arguments) {
    made_.emplace_back([=]() -> std::unique_ptr<DecodeStep> { return std::make_unique<Step>(arguments...); });
  }
  static std::string non_empty(const JsonValue& value) {
    if (value.text().empty()) value.refuse("expected a text that is not empty");
    return std::string(value.text());
  }
  static std::string one_character(const JsonValue& value) {
    auto words = non_empty(value);
    if (unicode::character_at(words, 0).length != words.size()) value.refuse("expected one character");
    return words;
  }

  DecodeSteps& made_;
};

// Replaces each `from` in a text that comes in chunks; holds back what may become one.
class StreamedReplace {
 public:
  StreamedReplace(std::string_view from, std::string_view to) : from_(from), to_(to) {}
  std::string push(std::string_view words, bool last) {
    held_ += words;
    auto keep = last ? 0 : std::min(from_.size() - 1, held_.size());
    auto out = replaced(held_, from_, to_);
    if (last) {
      held_.clear();
      return out;
    }
    // what is left behind the last match may end with a beginning of `from`
    const auto found = held_.rfind(from_);
    std::size_t tail = last_match_end(found);
    for (; keep > 0; --keep)
      if (held_.size() - tail >= keep && std::string_view(held_).substr(held_.size() - keep) == from_.substr(0, keep))
        break;
    out.resize(out.size() - keep);
    held_.erase(0, held_.size() - keep);
    return out;
  }

 private:
  // Matches do not overlap: go through them from the left.
  std::size_t last_match_end(std::size_t found) const {
    if (found == std::string::npos) return 0;
    std::size_t at = 0;
    for (auto next = held_.find(from_); next != std::string::npos; next = held_.find(from_, at))
      at = next + from_.size();
    return at;
  }
  std::string_view from_, to_;
  std::string held_;
};

}  // namespace

DecodeSteps make_decoders(const std::optional<JsonValue>& entry) {
  DecodeSteps made;
  if (entry)
    DecoderMaker(made).add(*entry);
  else
    made.emplace_back([]() -> std::unique_ptr<DecodeStep> { return std::make_unique<JoinByBlanks>(); });
  return made;
}

class DecodeChain::Output final : public DecodeStep {
 public:
  explicit Output(bool clean_up) {
    if (!clean_up) return;
    constexpr std::pair<std::string_view, std::string_view> rules[] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : rules) filters_.emplace_back(from, to);
  }
  void token(std::string words) override { add(std::move(words), false); }
  void chunk(std::string_view words) override { add(std::string(words), false); }
  void finish() override { add("", true); }
  std::string take() { return std::exchange(text_, {}); }

 private:
  void add(std::string words, bool last) {
    for (auto& filter : filters_) words = filter.push(words, last);
    text_ += words;
  }
  std::vector<StreamedReplace> filters_;
  std::string text_;
};

DecodeChain::DecodeChain(const DecodeSteps& steps, bool clean_up) : output_(std::make_unique<Output>(clean_up)) {
  for (const auto& make : steps) {
    steps_.push_back(make());
    if (steps_.size() > 1) steps_[steps_.size() - 2]->link(*steps_.back());
  }
  if (!steps_.empty()) steps_.back()->link(*output_);
}

DecodeChain::~DecodeChain() = default;

void DecodeChain::token(std::string words) {
  if (steps_.empty())
    output_->token(std::move(words));
  else
    steps_.front()->token(std::move(words));
}

std::string DecodeChain::take() { return output_->take(); }

void DecodeChain::finish() {
  if (steps_.empty())
    output_->finish();
  else
    steps_.front()->finish();
}

std::string DecodeChain::piece(std::string token) const {
  for (const auto& step : steps_) token = step->piece(std::move(token));
  return token;
}

}  // namespace tessera::tokenizers::hugging_face
