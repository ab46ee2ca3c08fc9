#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// The purpose of random numbers. It is part of their key, so different uses never share a stream.
enum class Purpose : std::uint32_t {
  initial_weights = 1,
  hidden_dropout = 2,
  attention_dropout = 3,
  data = 4,
  sampling = 5,
  router_jitter = 6,
  forced_routing = 7,
  adapter_dropout = 8
};

/// One block of Philox4x32-10: a pure function of key and counter.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The 64-bit hash FNV-1a. Converts the global name of a parameter to the id of its random stream.
constexpr std::uint64_t name_id(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// A stateless generator of random numbers, keyed by (seed, purpose, site). `site` is a place in the model, such as a
/// layer. Each `id`, a parameter or sample, has its own stream; `index` is an element of the parameter or sample in the
/// unsharded tensor. The same key gives the same number on every parallel layout, for every number of threads, and
/// after resuming.
class RandomKey {
 public:
  RandomKey() = default;
  /// Hashes the three values to the 64-bit key of Philox.
  RandomKey(std::uint64_t seed, Purpose purpose, std::uint64_t site = 0);

  /// Words 4 * block .. 4 * block + 3 of stream `id`.
  std::array<std::uint32_t, 4> words(std::uint64_t id, std::uint64_t block) const;
  /// Uniform in [0, 1) with 32 bits of resolution, from word `index` of stream `id`.
  double uniform(std::uint64_t id, std::uint64_t index) const;
  /// Standard normal (Box-Muller); elements 2k and 2k + 1 use the same two words.
  double normal(std::uint64_t id, std::uint64_t index) const;

  /// The key of Philox, for vectorized generators (kernels/philox.h).
  std::array<std::uint32_t, 2> key() const { return key_; }

 private:
  std::array<std::uint32_t, 2> key_ = {0, 0};
};

}  // namespace tessera
