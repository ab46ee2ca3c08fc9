#include "framework/gpt/md5.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tessera::gpt {
namespace {

using State = std::array<std::uint32_t, 4>;
constexpr std::size_t block_size = 64;

/// The constants of RFC 1321: the integer parts of 2^32 |sin(i + 1)|.
std::array<std::uint32_t, 64> sines() {
  std::array<std::uint32_t, 64> all{};
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::uint32_t>(std::floor(std::ldexp(std::fabs(std::sin(static_cast<double>(i + 1))), 32)));
  return all;
}

void add_block(State& state, const char* block) {
  static const auto constants = sines();
  constexpr std::array<std::array<int, 4>, 4> turns = {
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};
  std::array<std::uint32_t, 16> words{};
  std::memcpy(words.data(), block, block_size);
  auto [a, b, c, d] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t round = i / 16;
    const std::uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                                : round == 1 ? (d & b) | (~d & c)
                                : round == 2 ? b ^ c ^ d
                                             : c ^ (b | ~d);
    const std::size_t word = round == 0   ? i
                             : round == 1 ? (5 * i + 1) % 16
                             : round == 2 ? (3 * i + 5) % 16
                                          : 7 * i % 16;
    const auto sum = a + mixed + constants[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, turns[round][i % 4]);
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

std::string md5_hex(std::string_view bytes) {
  State state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::size_t at = 0;
  for (; bytes.size() - at >= block_size; at += block_size) add_block(state, bytes.data() + at);
  std::string rest(bytes.substr(at));
  rest += '\x80';
  while (rest.size() % block_size != block_size - 8) rest += '\0';
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  rest.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  for (std::size_t i = 0; i < rest.size(); i += block_size) add_block(state, rest.data() + i);
  constexpr const char* digits = "0123456789abcdef";
  std::string out;
  for (const auto word : state)
    for (unsigned byte = 0; byte < 4; ++byte) {
      const auto value = (word >> (8 * byte)) & 0xFFU;
      out += digits[value >> 4U];
      out += digits[value & 15U];
    }
  return out;
}

}  // namespace tessera::gpt
