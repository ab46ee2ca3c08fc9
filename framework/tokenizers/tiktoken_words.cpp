#include "framework/tokenizers/tiktoken_words.h"

#include <vector>

#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

using unicode::bit;
using unicode::Category;

// Classes of the expressions, one bit each.
enum : std::uint8_t {
  letter = 1,   // \p{L}
  number = 2,   // \p{N}
  space = 4,    // \s
  newline = 8,  // [\r\n]
  upper = 16,   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  lower = 32,   // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  slash = 64
};

const unicode::CodePointTable<std::uint8_t>& classes() {
  static const unicode::CodePointTable<std::uint8_t> table = [] {
    const auto& categories = unicode::categories(unicode::Version::v16);
    const auto& white_space = unicode::property(unicode::Property::white_space);
    const auto uncased = bit(Category::lm) | bit(Category::lo) | unicode::marks;
    std::vector<std::uint8_t> values(unicode::end_of_code_points, 0);
    for (char32_t code = 0; code < unicode::end_of_code_points; ++code) {
      const auto category = bit(categories.of(code));
      auto& value = values[code];
      if ((category & unicode::letters) != 0) value |= letter;
      if ((category & unicode::numbers) != 0) value |= number;
      if (white_space.has(code)) value |= space;
      if ((category & (uncased | bit(Category::lu) | bit(Category::lt))) != 0) value |= upper;
      if ((category & (uncased | bit(Category::ll))) != 0) value |= lower;
    }
    values['\r'] |= newline;
    values['\n'] |= newline;
    values['/'] |= slash;
    return unicode::CodePointTable<std::uint8_t>(values);
  }();
  return table;
}

struct Character {
  std::uint8_t kind = 0;
  std::size_t length = 0;  // 0: end of the text
  bool is(unsigned kinds) const { return length > 0 && (kind & kinds) != 0; }
  bool is_not(unsigned kinds) const { return length > 0 && (kind & kinds) == 0; }
};

class Matcher {
 public:
  Matcher(std::string_view text, std::size_t at) : table_(classes()), text_(text), at_(at) {}

  std::size_t v1() const {
    const auto first = character(at_);
    const auto begin = first.is_not(newline | letter | number) ? at_ + first.length : at_;
    if (const auto end = run(begin, letter); end > begin) return end;
    if (first.is(number)) return at_ + first.length;
    if (const auto end = signs(newline); end > at_) return end;
    return blanks();
  }

  std::size_t v2() const {
    const auto first = character(at_);
    const bool prefix = first.is_not(newline | letter | number);
    const std::size_t begins[] = {at_ + (prefix ? first.length : 0), at_};
    for (std::size_t i = prefix ? 0 : 1; i < 2; ++i)
      if (const auto end = upper_then_some_lower(begins[i]); end > 0) return end;
    for (std::size_t i = prefix ? 0 : 1; i < 2; ++i)
      if (const auto end = run(begins[i], upper); end > begins[i]) return run(end, lower);
    if (first.is(number)) return at_ + first.length;
    if (const auto end = signs(newline | slash); end > at_) return end;
    return blanks();
  }

 private:
  Character character(std::size_t at) const {
    if (at >= text_.size()) return {};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {table_.of(byte), 1};
    const auto step = unicode::utf8_step(text_, at);
    return step.valid ? Character{table_.of(step.code), step.length} : Character{0, 1};
  }

  // Behind the characters from `at` on that are of `kinds`.
  std::size_t run(std::size_t at, unsigned kinds) const {
    for (auto next = character(at); next.is(kinds); next = character(at)) at += next.length;
    return at;
  }

  // upper* lower+: where the upper run must give back characters that are lower too, only the last of them is lower. 0:
  // no match.
  std::size_t upper_then_some_lower(std::size_t at) const {
    std::size_t both_end = 0;
    auto next = character(at);
    for (; next.is(upper); next = character(at)) {
      at += next.length;
      if (next.is(lower)) both_end = at;
    }
    return next.is(lower) ? run(at, lower) : both_end;
  }

  // " ?" and signs, then any of `after`; at_ if there is no sign.
  std::size_t signs(unsigned after) const {
    auto at = text_[at_] == ' ' ? at_ + 1 : at_;
    const auto begin = at;
    for (auto next = character(at); next.is_not(space | letter | number); next = character(at)) at += next.length;
    return at > begin ? run(at, after) : at_;
  }

  // Up to the last end of a line in the run; or all but the last blank; or all.
  std::size_t blanks() const {
    std::size_t end = at_, last = at_, line_end = at_;
    for (auto next = character(end); next.is(space); next = character(end)) {
      last = end;
      end += next.length;
      if (next.is(newline)) line_end = end;
    }
    if (line_end > at_) return line_end;
    return end < text_.size() && last > at_ ? last : end;
  }

  const unicode::CodePointTable<std::uint8_t>& table_;
  std::string_view text_;
  std::size_t at_;
};

}  // namespace

std::string_view expression(TiktokenPattern pattern) {
  if (pattern == TiktokenPattern::v1)
    return R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
  return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
         R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
         R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::size_t next_tiktoken_word(TiktokenPattern pattern, std::string_view text, std::size_t at) {
  const Matcher matcher(text, at);
  return (pattern == TiktokenPattern::v1 ? matcher.v1() : matcher.v2()) - at;
}

}  // namespace tessera::tokenizers
