#include "framework/tokenizers/base64.h"

#include <cstdint>

#include "framework/base/error.h"

namespace tessera::tokenizers {
namespace {

int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string from_base64(std::string_view base64, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(text(name, ": is not valid base64: ", what,
                           "; expected A-Z, a-z, 0-9, + and / in groups of four, the last one padded with ="));
  };
  if (base64.size() % 4 != 0) refuse(text("its length ", base64.size(), " is not a multiple of 4"));
  std::string bytes;
  bytes.reserve(base64.size() / 4 * 3);
  for (std::size_t at = 0; at < base64.size(); at += 4) {
    std::size_t padding = 0;
    if (at + 4 == base64.size()) padding = base64[at + 3] != '=' ? 0 : base64[at + 2] != '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto value = i < 4 - padding ? digit(base64[at + i]) : 0;
      if (value < 0) refuse(text("character ", at + i + 1, " of ", base64.size(), " is not allowed there"));
      group = (group << 6U) | static_cast<std::uint32_t>(value);
    }
    for (std::size_t i = 0; i < 3 - padding; ++i) bytes += static_cast<char>((group >> (16 - 8 * i)) & 0xFFU);
  }
  return bytes;
}

}  // namespace tessera::tokenizers
