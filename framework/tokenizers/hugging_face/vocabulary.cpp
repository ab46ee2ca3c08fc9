#include "framework/tokenizers/hugging_face/vocabulary.h"

#include <functional>

namespace tessera::tokenizers::hugging_face {

std::uint64_t Vocabulary::hash_of(std::string_view token) { return std::hash<std::string_view>{}(token); }

void Vocabulary::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  by_id_.reserve(tokens);
  text_.reserve(8 * tokens);
  std::size_t slots = 64;
  while (slots < 2 * tokens) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  const auto mask = slots_.size() - 1;
  auto at = hash_of(token) & mask;
  while (slots_[at] != 0 && text_of(entries_[slots_[at] - 1]) != token) at = (at + 1) & mask;
  return at;
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    slots_[slot_of(text_of(entries_[i]))] = static_cast<std::uint32_t>(i + 1);
}

void Vocabulary::add(std::string_view token, std::int32_t id) {
  if (slots_.size() < 2 * (entries_.size() + 1)) grow(slots_.empty() ? 64 : 2 * slots_.size());
  auto& slot = slots_[slot_of(token)];
  if (slot == 0) {
    entries_.push_back({text_.size(), static_cast<std::uint32_t>(token.size()), id});
    text_ += token;
    slot = static_cast<std::uint32_t>(entries_.size());
    ++count_;
  }
  auto& entry = entries_[slot - 1];
  if (const auto old = static_cast<std::size_t>(entry.id); old < by_id_.size() && by_id_[old] == slot) by_id_[old] = 0;
  entry.id = id;
  if (static_cast<std::size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<std::size_t>(id) + 1);
  by_id_[static_cast<std::size_t>(id)] = slot;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const auto slot = slots_[slot_of(token)];
  return slot == 0 ? std::nullopt : std::optional(entries_[slot - 1].id);
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= by_id_.size()) return std::nullopt;
  const auto entry = by_id_[static_cast<std::size_t>(id)];
  return entry == 0 ? std::nullopt : std::optional(text_of(entries_[entry - 1]));
}

}  // namespace tessera::tokenizers::hugging_face
