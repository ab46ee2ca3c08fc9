#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera::data {

/// Random orders of other programs, reproduced bit for bit. For new code use base/random.h.

/// NumPy's RandomState(seed): MT19937, with its rule for numbers below a bound (mask and reject).
/// Source: Matsumoto & Nishimura 1998, doi:10.1145/272991.272995.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(std::uint32_t seed);

  /// A random number in [0, most].
  std::uint64_t bounded(std::uint64_t most) {
    const auto mask = mask_of(most);
    for (;;) {
      const std::uint64_t drawn = most <= 0xFFFFFFFFU ? next() : wide();
      if ((drawn & mask) <= most) return drawn & mask;
    }
  }

  /// Shuffles as RandomState.shuffle does: for i from the last item to 1, exchanges items i and bounded(i).
  template <class T>
  void shuffle(std::span<T> items) {
    std::size_t i = items.empty() ? 0 : items.size() - 1;
    for (; i > 0xFFFFFFFFU; --i) std::swap(items[i], items[bounded(i)]);
    // Numbers are drawn ahead of the exchanges, so that their items are prefetched from memory meanwhile.
    std::array<std::uint32_t, 512> drawn;
    while (i > 0) {
      const auto mask = static_cast<std::uint32_t>(mask_of(i));
      const std::size_t last = mask >> 1U;  // below it the mask changes
      std::size_t count = 0, next_item = i;
      while (count < drawn.size() && next_item > last) {
        const auto number = next() & mask;
        drawn[count] = number;
        if (number < items.size()) __builtin_prefetch(&items[number], 1);
        const std::size_t taken = number <= next_item ? 1 : 0;  // no branch, because a third of all numbers is rejected
        count += taken;
        next_item -= taken;
      }
      for (std::size_t k = 0; k < count; ++k) std::swap(items[i - k], items[drawn[k]]);
      i = next_item;
    }
  }

 private:
  static std::uint64_t mask_of(std::uint64_t most) {
    for (unsigned shift = 1; shift < 64; shift *= 2) most |= most >> shift;
    return most;
  }
  std::uint64_t wide() {
    const std::uint64_t high = next();
    return (high << 32U) | next();
  }
  std::uint32_t next() {
    if (at_ == drawn_.size()) refill();
    return drawn_[at_++];
  }
  void refill();

  static constexpr std::size_t words = 624;
  std::array<std::uint32_t, words> state_{}, drawn_{};
  std::size_t at_ = words;
};

/// torch.randperm(count, generator=torch.Generator().manual_seed(seed)) on the CPU, for fewer than 2^32 / 20 numbers.
std::vector<std::int64_t> torch_randperm(std::int64_t count, std::uint32_t seed);

/// numpy.random.default_rng(seed).integers(low, high, count, dtype=int32): PCG64 seeded by SeedSequence, Lemire's rule.
/// Sources: O'Neill, HMC-CS-2014-0905; Lemire, arXiv:1805.10941.
std::vector<std::int32_t> numpy_integers(std::uint32_t seed, std::int32_t low, std::int32_t high, std::size_t count);

}  // namespace tessera::data
