#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// The orders that other programs drew, to the bit. For new randomness use base/random.h.

/// NumPy's RandomState(seed): MT19937, with its rule for numbers below a bound (mask and reject).
class NumpyRandomState {
 public:
  explicit NumpyRandomState(std::uint32_t seed) : twister_(seed) {}

  /// A number in [0, most].
  std::uint64_t bounded(std::uint64_t most) {
    std::uint64_t mask = most;
    for (unsigned shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    for (;;) {
      const std::uint64_t drawn = most <= 0xFFFFFFFFU ? twister_() : wide();
      if ((drawn & mask) <= most) return drawn & mask;
    }
  }

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i-- > 1;) std::swap(items[i], items[bounded(i)]);
  }

 private:
  std::uint64_t wide() {
    const std::uint64_t high = twister_();
    return (high << 32U) | twister_();
  }
  std::mt19937 twister_;
};

/// torch.randperm(count, generator=torch.Generator().manual_seed(seed)) on the CPU, for fewer than 2^32 / 20 numbers.
std::vector<std::int64_t> torch_randperm(std::int64_t count, std::uint32_t seed);

/// numpy.random.default_rng(seed).integers(low, high, count, dtype=int32): PCG64 seeded by SeedSequence, Lemire's rule.
/// Sources: O'Neill, HMC-CS-2014-0905; Lemire, arXiv:1805.10941.
std::vector<std::int32_t> numpy_integers(std::uint32_t seed, std::int32_t low, std::int32_t high, std::size_t count);

}  // namespace tessera
