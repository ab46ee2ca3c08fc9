#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Words already encoded and their ids: text repeats its words, and merging a word costs much more than finding it.
/// Belongs to one thread. Takes words up to `longest_word` bytes, until it holds `most_words`.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 64, most_words = std::size_t{1} << 20U;

  WordCache() : slots_(1U << 12U) {}
  static bool takes(std::string_view word) { return word.size() <= longest_word; }
  /// Append the ids of `word`; false when it is not known.
  bool find(std::string_view word, std::vector<std::int32_t>& ids) const;
  void remember(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Slot {
    std::uint64_t hash = 0;  // 0: empty
    std::uint32_t word_at = 0, ids_at = 0;
    std::uint16_t word_size = 0, ids_size = 0;
  };
  static std::uint64_t hash_of(std::string_view word);
  std::size_t place_of(std::uint64_t hash, std::string_view word) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t words_ = 0;
  std::string text_;
  std::vector<std::int32_t> ids_;
};

}  // namespace tessera
