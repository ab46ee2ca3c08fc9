#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tokenizers/hugging_face/visit.h"

namespace tessera::tokenizers::hugging_face {

/// A token that is searched in the text before the model is applied; fields as in tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false, single_word = false, lstrip = false, rstrip = false, normalized = true;
};

/// Finds added tokens in texts: the leftmost match, of several the longest.
class AddedTokenFinder {
 public:
  /// `spelt` is the text to search for: the token's content, normalized if the token is.
  struct Entry {
    std::string spelt;
    AddedToken token;
  };
  /// `passes_special`: special tokens are passed over as ordinary text, with the shorter tokens inside them.
  explicit AddedTokenFinder(std::vector<Entry> entries, bool passes_special = false);
  bool empty() const { return entries_.empty(); }

  /// A part of the text: an added token (with its id), or the text between tokens.
  struct Part {
    std::size_t begin, end;
    std::optional<std::int32_t> id;
  };
  /// Calls `sink` for the parts from left to right. A token with `lstrip` or `rstrip` includes the adjacent white
  /// space; one with `single_word` matches only between non-word characters.
  void find(std::string_view text, const Visit<Part>& sink) const;

 private:
  // A trie of the spelt tokens, in the order of their texts: the children of a node are its entries' next bytes.
  struct Node {
    std::uint32_t first_child = 0, children = 0;
    std::int32_t entry = -1;
  };
  void build(std::uint32_t node, std::size_t low, std::size_t high, std::size_t depth);
  std::optional<std::size_t> longest(std::string_view text, std::size_t at, std::size_t& size) const;

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;
  std::vector<unsigned char> bytes_;  // the byte that leads from its parent to a node
  std::array<bool, 256> begins_{};
  bool passes_special_;
};

}  // namespace tessera::tokenizers::hugging_face
