#include "framework/unicode/unicode_classes.h"

#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/utf8.h"

namespace tessera::unicode {
namespace {

struct Character {
  UnicodeClass kind;
  std::size_t length;
};

Character character_at(const UnicodeClasses& classes, std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {classes.of(first), 1};
  const auto step = utf8_step(text, at);
  if (!step.valid) return {UnicodeClass::other, 1};
  return {classes.of(step.code), step.length};
}

// The end of the run of characters of class `kind` that begins at `at`.
std::size_t end_of_run(const UnicodeClasses& classes, std::string_view text, std::size_t at, UnicodeClass kind) {
  while (at < text.size()) {
    const auto next = character_at(classes, text, at);
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

// Length of 's 't 'm 'd 're 've 'll; 0 if there is none.
std::size_t contraction(std::string_view text, std::size_t at) {
  const auto rest = text.substr(at + 1, 2);
  if (rest.empty()) return 0;
  if (rest[0] == 's' || rest[0] == 't' || rest[0] == 'm' || rest[0] == 'd') return 2;
  return rest == "re" || rest == "ve" || rest == "ll" ? 3 : 0;
}

// A run of white space leaves its last character to what follows, unless it is alone or nothing follows.
std::size_t white_space(const UnicodeClasses& classes, std::string_view text, std::size_t at) {
  auto last = at, end = at;
  while (end < text.size()) {
    const auto next = character_at(classes, text, end);
    if (next.kind != UnicodeClass::space) return (last > at ? last : end) - at;
    last = end;
    end += next.length;
  }
  return end - at;
}

}  // namespace

UnicodeClasses::UnicodeClasses(unicode::Version version) : bits_(0x110000 / 4) {
  const auto& table = unicode::categories(version);
  const auto& space = unicode::property(unicode::Property::white_space);
  for (char32_t code = 0; code < unicode::end_of_code_points; ++code) {
    const auto category = unicode::bit(table.of(code));
    const auto kind = (category & unicode::letters) != 0   ? UnicodeClass::letter
                      : (category & unicode::numbers) != 0 ? UnicodeClass::number
                      : space.has(code)                    ? UnicodeClass::space
                                                           : UnicodeClass::other;
    bits_[code >> 2U] |= static_cast<std::uint8_t>(static_cast<unsigned>(kind) << (2 * (code & 3U)));
  }
}

std::size_t detail::next_piece_of_any_kind(const UnicodeClasses& classes, std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    if (const auto length = contraction(text, at); length > 0) return length;
  auto begin = at;
  auto first = character_at(classes, text, begin);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const auto next = character_at(classes, text, at + 1);
    if (next.kind != UnicodeClass::space) {
      begin = at + 1;
      first = next;
    }
  }
  if (first.kind == UnicodeClass::space) return white_space(classes, text, at);
  return end_of_run(classes, text, begin + first.length, first.kind) - at;
}

}  // namespace tessera::unicode
