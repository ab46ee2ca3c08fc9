#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizers::hugging_face {

/// Tokens and their ids. The texts are stored in one buffer and found by a hash table with open addressing.
class Vocabulary {
 public:
  /// Largest accepted id: a larger one indicates an error in the file, and would need much memory.
  static constexpr std::int64_t most = std::int64_t{1} << 24U;

  void reserve(std::size_t tokens);
  /// Adds a token. If it exists, it gets the new id.
  void add(std::string_view token, std::int32_t id);
  std::optional<std::int32_t> find(std::string_view token) const;
  /// Number of different tokens.
  std::size_t size() const { return count_; }
  /// The token with this id; nothing if there is none.
  std::optional<std::string_view> token(std::int32_t id) const;
  std::int32_t largest_id() const { return static_cast<std::int32_t>(by_id_.size()) - 1; }

 private:
  struct Entry {
    std::uint64_t begin;
    std::uint32_t size;
    std::int32_t id;
  };
  static std::uint64_t hash_of(std::string_view token);
  std::string_view text_of(const Entry& entry) const { return std::string_view(text_).substr(entry.begin, entry.size); }
  std::size_t slot_of(std::string_view token) const;
  void grow(std::size_t slots);

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // entry + 1; 0: free
  std::vector<std::uint32_t> by_id_;  // entry + 1; 0: no such id
  std::size_t count_ = 0;
};

}  // namespace tessera::tokenizers::hugging_face
