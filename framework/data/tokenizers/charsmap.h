#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// The text map of a SentencePiece model, as `precompiled_charsmap` of its normalizer_spec or of tokenizer.json's
/// normaliser `Precompiled` has it: the size of a double-array trie in bytes (32 bits, little-endian), its 32-bit
/// units, then the replacements, each ended by a zero byte.
class CharsMap {
 public:
  /// `blob`: the bytes, not base64. `name`: whose it is, for errors. Throws ConfigError if it is shorter than its trie
  /// or the trie is empty or the replacements are no UTF-8.
  CharsMap(std::string_view blob, const std::string& name);

  /// `text` (UTF-8) as `tokenizers`' Precompiled normalises it (crate spm_precompiled): a grapheme cluster below six
  /// bytes as a whole becomes the replacement of the shortest beginning that the map knows; otherwise each of its
  /// characters does so alone. (SentencePiece itself takes the longest.) Throws ConfigError if a replacement lies
  /// outside the blob. Stretches of ASCII are looked up by character, without clusters.
  std::string normalized(std::string_view text) const;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view text) const;
  void append(std::string_view text, std::string& to) const;
  void append_clusters(std::string_view text, std::string& to) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_, name_;
  std::array<std::size_t, 128> ascii_{};  // where the replacement of each ASCII character begins, or `none`
};

}  // namespace tessera::data
