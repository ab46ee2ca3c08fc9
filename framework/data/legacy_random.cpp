#include "framework/data/legacy_random.h"

#include <array>
#include <numeric>
#include <random>

namespace tessera::data {
namespace {

// The hash that spreads a seed over the 256 bits that PCG64 starts from.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint32_t seed) {
    for (auto& word : pool_) word = hash(&word == pool_.data() ? seed : 0);
    for (auto& from : pool_)
      for (auto& to : pool_)
        if (&from != &to) to = mix(to, hash(from));
  }

  std::array<std::uint64_t, 4> words() const {
    std::array<std::uint32_t, 8> halves{};
    std::uint32_t constant = 0x8b51f9dd;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      auto value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      halves[i] = value ^ (value >> 16U);
    }
    std::array<std::uint64_t, 4> out{};
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = halves[2 * i] | (static_cast<std::uint64_t>(halves[2 * i + 1]) << 32U);
    return out;
  }

 private:
  std::uint32_t hash(std::uint32_t value) {
    value ^= constant_;
    constant_ *= 0x931e8875;
    value *= constant_;
    return value ^ (value >> 16U);
  }
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const auto value = 0xca01f9ddU * x - 0x4973f715U * y;
    return value ^ (value >> 16U);
  }
  std::array<std::uint32_t, 4> pool_{};
  std::uint32_t constant_ = 0x43b0d7e5;
};

__extension__ using Wide = unsigned __int128;

class Pcg64 {
 public:
  explicit Pcg64(std::uint32_t seed) {
    const auto words = SeedSequence(seed).words();
    increment_ = (join(words[2], words[3]) << 1U) | 1U;
    step();
    state_ += join(words[0], words[1]);
    step();
  }

  std::uint32_t next32() {  // the lower half first, the upper half kept
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const auto both = next64();
    has_half_ = true;
    half_ = static_cast<std::uint32_t>(both >> 32U);
    return static_cast<std::uint32_t>(both);
  }

 private:
  static Wide join(std::uint64_t high, std::uint64_t low) { return (static_cast<Wide>(high) << 64U) | low; }
  void step() { state_ = state_ * join(2549297995355413924U, 4865540595714422341U) + increment_; }
  std::uint64_t next64() {
    step();
    const auto folded = static_cast<std::uint64_t>(state_ >> 64U) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122U);
    return (folded >> turn) | (folded << ((64U - turn) & 63U));
  }
  Wide state_ = 0, increment_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace

NumpyRandomState::NumpyRandomState(std::uint32_t seed) {
  for (std::size_t i = 0; i < words; ++i) {
    state_[i] = seed;
    seed = 1812433253U * (seed ^ (seed >> 30U)) + static_cast<std::uint32_t>(i) + 1;
  }
}

/// The next 624 numbers. Each word of the state depends on the word after it and the one 397 further on.
void NumpyRandomState::refill() {
  constexpr std::size_t distance = 397;
  const auto twisted = [](std::uint32_t high, std::uint32_t low, std::uint32_t far) {
    const auto joined = (high & 0x80000000U) | (low & 0x7FFFFFFFU);
    return far ^ (joined >> 1U) ^ ((0U - (low & 1U)) & 0x9908B0DFU);
  };
  auto& s = state_;
  for (std::size_t i = 0; i < words - distance; ++i) s[i] = twisted(s[i], s[i + 1], s[i + distance]);
  for (std::size_t i = words - distance; i < words - 1; ++i) s[i] = twisted(s[i], s[i + 1], s[i + distance - words]);
  s[words - 1] = twisted(s[words - 1], s[0], s[distance - 1]);
  for (std::size_t i = 0; i < words; ++i) {
    auto number = s[i];
    number ^= number >> 11U;
    number ^= (number << 7U) & 0x9D2C5680U;
    number ^= (number << 15U) & 0xEFC60000U;
    drawn_[i] = number ^ (number >> 18U);
  }
  at_ = 0;
}

std::vector<std::int64_t> torch_randperm(std::int64_t count, std::uint32_t seed) {
  std::mt19937 twister(seed);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + twister() % (order.size() - i)]);
  return order;
}

std::vector<std::int32_t> numpy_integers(std::uint32_t seed, std::int32_t low, std::int32_t high, std::size_t count) {
  Pcg64 generator(seed);
  const auto choices = static_cast<std::uint32_t>(static_cast<std::int64_t>(high) - low);
  const auto unfair = (0U - choices) % choices;  // draws whose lower half is below it would favour some numbers
  std::vector<std::int32_t> out(count);
  for (auto& number : out) {
    std::uint64_t scaled;
    do scaled = std::uint64_t{generator.next32()} * choices;
    while (static_cast<std::uint32_t>(scaled) < unfair);
    number = low + static_cast<std::int32_t>(scaled >> 32U);
  }
  return out;
}

}  // namespace tessera::data
