#include "framework/base/utf8.h"

namespace tessera {
namespace {

struct Lead {
  std::size_t length;       // bytes of the character; 0: no character begins so
  unsigned char low, high;  // what the second byte may be
};

Lead lead_of(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const auto lead = lead_of(first);
  if (lead.length == 0) return {};
  if (lead.length == 1) return {first, 1, true, false};
  char32_t code = first & (0x7FU >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {0, i, false, true};
    const auto next = static_cast<unsigned char>(text[at + i]);
    const bool fits = i == 1 ? next >= lead.low && next <= lead.high : (next & 0xC0U) == 0x80;
    if (!fits) return {0, i, false, false};
    code = (code << 6U) | (next & 0x3FU);
  }
  return {code, lead.length, true, false};
}

std::string to_utf8(char32_t code) {
  const auto tail = [code](unsigned shift) { return static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6U)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12U)), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | (code >> 18U)), tail(12), tail(6), tail(0)};
}

}  // namespace tessera
