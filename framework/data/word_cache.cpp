#include "framework/data/word_cache.h"

#include <cstring>

namespace tessera {

std::uint64_t WordCache::hash_of(std::string_view word) {
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
  return (hash ^ (hash >> 29U)) | 1U;
}

std::size_t WordCache::place_of(std::uint64_t hash, std::string_view word) const {
  const auto mask = slots_.size() - 1;
  auto at = (hash >> 1U) & mask;
  while (slots_[at].hash != 0) {
    const auto& slot = slots_[at];
    if (slot.hash == hash && slot.word_size == word.size() &&
        std::memcmp(text_.data() + slot.word_at, word.data(), word.size()) == 0)
      break;
    at = (at + 1) & mask;
  }
  return at;
}

bool WordCache::find(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto& slot = slots_[place_of(hash_of(word), word)];
  if (slot.hash == 0) return false;
  const auto* first = ids_.data() + slot.ids_at;
  ids.insert(ids.end(), first, first + slot.ids_size);
  return true;
}

void WordCache::remember(std::string_view word, std::span<const std::int32_t> ids) {
  if (words_ >= most_words) return;
  if (2 * (words_ + 1) > slots_.size()) grow();
  const auto hash = hash_of(word);
  auto& slot = slots_[place_of(hash, word)];
  if (slot.hash != 0) return;
  slot = {hash, static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(ids_.size()),
          static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
  text_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++words_;
}

void WordCache::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const auto mask = slots_.size() - 1;
  for (const auto& slot : old) {
    if (slot.hash == 0) continue;
    auto at = (slot.hash >> 1U) & mask;
    while (slots_[at].hash != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}  // namespace tessera
