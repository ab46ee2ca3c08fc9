#include "framework/base/random.h"

#include <cmath>
#include <numbers>

namespace tessera {
namespace {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit affects all output bits.
std::uint64_t spread(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr double from_word = 0x1p-32;

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c[0], p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  return c;
}

RandomKey::RandomKey(std::uint64_t seed, Purpose purpose, std::uint64_t site) {
  const auto mixed = spread(spread(spread(seed) ^ static_cast<std::uint64_t>(purpose)) ^ site);
  key_ = {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

std::array<std::uint32_t, 4> RandomKey::words(std::uint64_t id, std::uint64_t block) const {
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                 static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                key_);
}

double RandomKey::uniform(std::uint64_t id, std::uint64_t index) const {
  return words(id, index / 4)[index % 4] * from_word;
}

double RandomKey::normal(std::uint64_t id, std::uint64_t index) const {
  const auto four = words(id, index / 4);
  const auto pair = (index % 4) / 2 * 2;
  const double radius = std::sqrt(-2 * std::log((four[pair] + 1.0) * from_word));  // (0, 1]: never log(0)
  const double angle = 2 * std::numbers::pi * (four[pair + 1] * from_word);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace tessera
