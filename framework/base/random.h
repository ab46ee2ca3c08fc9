#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

/// What a random number is for. The purpose is part of its key, so no two uses share a stream.
enum class Purpose : std::uint32_t {
  initial_weights = 1,
  hidden_dropout = 2,
  attention_dropout = 3,
  data = 4,
  sampling = 5
};

/// One block of Philox4x32-10: a pure function of key and counter.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// FNV-1a, 64 bits: turns the global name of a parameter into the id of its stream.
constexpr std::uint64_t name_id(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// A stream of random numbers without state, keyed by (seed, purpose, site): `site` says where in the model, `id`
/// which parameter or sample, `index` which element of it in unsplit coordinates. The same key gives the same number
/// on every layout, thread count and restart.
class RandomKey {
 public:
  RandomKey() = default;
  RandomKey(std::uint64_t seed, Purpose purpose, std::uint64_t site = 0);

  /// Words 4*block .. 4*block+3 of the stream `id`.
  std::array<std::uint32_t, 4> words(std::uint64_t id, std::uint64_t block) const;
  /// Uniform in [0, 1), 32 bits fine: word `index` of the stream `id`.
  double uniform(std::uint64_t id, std::uint64_t index) const;
  /// Standard normal by Box and Muller: elements 2k and 2k+1 share two words.
  double normal(std::uint64_t id, std::uint64_t index) const;

  std::array<std::uint32_t, 2> key() const { return key_; }

 private:
  std::array<std::uint32_t, 2> key_ = {0, 0};
};

}  // namespace tessera
