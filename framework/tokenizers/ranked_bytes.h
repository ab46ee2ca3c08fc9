#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::tokenizers {

/// Byte-pair encoding as in `tiktoken`: each token is a byte string with a rank. Repeatedly joins the two adjacent
/// parts whose concatenation has the lowest rank, the leftmost of equal ones.
class RankedBytes {
 public:
  /// Adds `token` with the next rank, counted from 0. Returns false if it exists already.
  bool add(const std::string& token);
  std::size_t size() const { return tokens_.size(); }
  const std::string& token(std::size_t rank) const { return *tokens_[rank]; }

  /// Appends the ranks of `word` to `ids`, each plus `shift`. Throws ConfigError if a byte of the word is not a token;
  /// `name` names the vocabulary in the message.
  void encode(std::string_view word, std::int32_t shift, const std::string& name, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>()(bytes); }
  };
  std::uint32_t rank(std::string_view bytes) const;
  std::vector<std::size_t> parts_of_short(std::string_view word) const;
  std::vector<std::size_t> parts_of_long(std::string_view word) const;

  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ranks_;
  std::vector<const std::string*> tokens_;  // keys of ranks_
  std::size_t longest_ = 0;                 // bytes of the longest token
};

}  // namespace tessera::tokenizers
