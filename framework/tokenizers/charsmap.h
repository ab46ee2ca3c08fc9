#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizers {

/// The normalization map of a SentencePiece model, in the format of `precompiled_charsmap` in its normalizer_spec or in
/// the normalizer `Precompiled` of tokenizer.json: the size of a double-array trie in bytes (32 bits, little-endian),
/// its 32-bit units, then the replacements, each terminated by a zero byte.
class CharsMap {
 public:
  /// `blob`: the decoded bytes, not base64. `name`: for error messages. Throws ConfigError if the blob is shorter than
  /// its trie, the trie is empty, or the replacements are not UTF-8.
  CharsMap(std::string_view blob, const std::string& name);

  /// Normalizes `text` (UTF-8) as the normalizer Precompiled of `tokenizers` does (crate spm_precompiled): a grapheme
  /// cluster of fewer than six bytes is replaced, as a whole, by the replacement of its shortest prefix in the map;
  /// otherwise, each of its characters is replaced alone. (SentencePiece itself takes the longest prefix.) Throws
  /// ConfigError if a replacement is outside the blob. ASCII text is looked up by character, without determining
  /// clusters. Throws ConfigError also once the result has more than `most` bytes.
  std::string normalized(std::string_view text, std::size_t most = static_cast<std::size_t>(-1)) const;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t find(std::string_view text) const;
  void append(std::string_view text, std::string& to) const;
  void append_clusters(std::string_view text, std::string& to, std::size_t most) const;
  void check_growth(const std::string& to, std::size_t most) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_, name_;
  std::array<std::size_t, 128> ascii_{};  // start of the replacement of each ASCII character, or `none`
};

}  // namespace tessera::tokenizers
