#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::tokenizers {

/// A cache of recently encoded words with their ids: text repeats its words, and merging a word costs much more than a
/// lookup. It has 3 MiB; a new word replaces an old one. Must not be shared between threads.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 64;  ///< in bytes
  static constexpr std::size_t short_ids = 4;      ///< find_short() always writes this many ids, whatever it finds

  WordCache() : short_(short_sets), long_(long_slots) {}
  static bool takes(std::string_view word) { return word.size() <= longest_word; }

  /// The key of a word of at most 15 bytes: its bytes, zeros, its size. `readable`: number of bytes that may be read
  /// from word.data() on, at least word.size().
  struct Key {
    std::uint64_t low = 0, high = 0;
    bool operator==(const Key& other) const { return low == other.low && high == other.high; }
  };
  static bool is_short(std::size_t size) { return size < 16; }
  static Key key_of(std::string_view word, std::size_t readable);

  /// The table position of a short word, which the processor begins to prefetch. Calling this for some words before
  /// find_short() hides the memory latency.
  std::size_t prepare(const Key& key) const {
    const auto set = set_of(key);
    __builtin_prefetch(&short_[set]);
    return set;
  }
  /// Writes the ids of a short word to out[0 .. short_ids). Returns how many of them are valid; 0: the word is not in
  /// the cache.
  std::size_t find_short(const Key& key, std::size_t prepared, std::int32_t* out) const;
  /// The ids of a longer word that takes() allows; empty: not in the cache. Valid until the next remember().
  std::span<const std::int32_t> find(std::string_view word) const;
  /// Appends the ids of any word that takes() allows to `ids`; returns false if it is not in the cache. For callers
  /// that look up one word at a time.
  bool append(std::string_view word, std::vector<std::int32_t>& ids) const;
  /// Stores a word with its ids. Words with too many ids are not stored.
  void remember(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Short {
    Key key;  // all zeros: empty
    std::array<std::int32_t, 3> ids{};
    std::uint32_t count = 0;
  };
  struct alignas(64) Set {  // a line of the processor's cache
    std::array<Short, 2> ways;
  };
  struct Long {
    std::array<char, longest_word> word{};
    std::array<std::int32_t, 15> ids{};
    std::uint16_t size = 0, count = 0;
  };
  static constexpr std::size_t short_sets = std::size_t{1} << 15U, long_slots = std::size_t{1} << 13U;
  static std::size_t set_of(const Key& key) {
    const auto mixed = (key.low ^ (key.high * 0xC2B2AE3D27D4EB4FU)) * 0x9E3779B97F4A7C15U;
    return mixed >> (64 - 15);
  }
  static std::size_t slot_of(std::string_view word);

  std::vector<Set> short_;
  std::vector<Long> long_;
};

inline WordCache::Key WordCache::key_of(std::string_view word, std::size_t readable) {
  Key key;
  const auto size = word.size();
  if (readable >= 16) {
    std::memcpy(&key.low, word.data(), 8);
    std::memcpy(&key.high, word.data() + 8, 8);
    // Little-endian: the bytes after the word are the upper ones.
    key.low &= size >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
    key.high &= size <= 8 ? 0 : (std::uint64_t{1} << (8 * (size - 8))) - 1;
  } else {
    std::array<char, 16> padded{};
    std::memcpy(padded.data(), word.data(), size);
    std::memcpy(&key.low, padded.data(), 8);
    std::memcpy(&key.high, padded.data() + 8, 8);
  }
  key.high |= static_cast<std::uint64_t>(size) << 56U;
  return key;
}

inline std::size_t WordCache::find_short(const Key& key, std::size_t prepared, std::int32_t* out) const {
  const auto& set = short_[prepared];
  const auto& way = set.ways[0].key == key ? set.ways[0] : set.ways[1];
  if (!(way.key == key)) return 0;
  std::memcpy(out, way.ids.data(), sizeof way.ids);
  return way.count;
}

}  // namespace tessera::tokenizers
