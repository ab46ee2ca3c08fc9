#include "framework/tokenizers/word_cache.h"

#include <algorithm>

namespace tessera::tokenizers {

std::size_t WordCache::slot_of(std::string_view word) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  std::uint64_t hash = word.size() * odd;
  std::size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    std::uint64_t part;
    std::memcpy(&part, word.data() + at, 8);
    hash = (hash ^ part) * odd;
    hash ^= hash >> 32U;
  }
  std::uint64_t part = 0;
  std::memcpy(&part, word.data() + at, word.size() - at);
  hash = (hash ^ part) * odd;
  return hash >> (64 - 13);
}

std::span<const std::int32_t> WordCache::find(std::string_view word) const {
  const auto& slot = long_[slot_of(word)];
  if (slot.size != word.size() || std::memcmp(slot.word.data(), word.data(), word.size()) != 0) return {};
  return {slot.ids.data(), slot.count};
}

bool WordCache::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!is_short(word.size())) {
    const auto known = find(word);
    ids.insert(ids.end(), known.begin(), known.end());
    return !known.empty();
  }
  const auto key = key_of(word, word.size());
  const auto used = ids.size();
  ids.resize(used + short_ids);
  const auto found = find_short(key, set_of(key), ids.data() + used);
  ids.resize(used + found);
  return found > 0;
}

void WordCache::remember(std::string_view word, std::span<const std::int32_t> ids) {
  if (word.empty() || ids.empty() || !takes(word)) return;
  if (is_short(word.size()) && ids.size() <= std::tuple_size_v<decltype(Short::ids)>) {
    const auto key = key_of(word, word.size());
    auto& ways = short_[set_of(key)].ways;
    ways[1] = ways[0];
    ways[0].key = key;
    ways[0].count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), ways[0].ids.begin());
  } else if (auto& slot = long_[slot_of(word)]; ids.size() <= slot.ids.size()) {
    slot.size = static_cast<std::uint16_t>(word.size());
    slot.count = static_cast<std::uint16_t>(ids.size());
    std::copy(word.begin(), word.end(), slot.word.begin());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }
}

}  // namespace tessera::tokenizers
