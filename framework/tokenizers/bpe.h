#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::tokenizers {

/// GPT-2's spelling of bytes as printable characters: 33-126, 161-172 and 174-255 are themselves, the other 68 in
/// increasing order are U+0100, U+0101, ... Vocabulary and merge files are written in it.
class ByteSpelling {
 public:
  ByteSpelling();
  char32_t of(unsigned char byte) const { return spelt_[byte]; }
  /// The bytes that a spelt token represents; characters outside the spelling are kept unchanged.
  std::string bytes(std::string_view spelt) const;
  std::string spell(std::string_view bytes) const;

 private:
  std::array<char32_t, 256> spelt_;
  std::array<int, 0x180> byte_;  // -1: not in the spelling
};

/// The first line of a merge file.
inline constexpr std::string_view merges_header = "#version: 0.2";

/// Byte-level BPE: a vocabulary and a list of merges, of which earlier ones have priority. Source: Sennrich et al.,
/// arXiv:1508.07909. The files have GPT-2's format: vocab.json maps spelt tokens to ids; merges.txt has a header and
/// then lines "left right".
class BpeModel {
 public:
  /// Throws ConfigError, naming file and line, if a file is missing or malformed, or if a merge makes a token that the
  /// vocabulary does not have.
  BpeModel(const std::string& vocab_file, const std::string& merge_file);

  /// Number of entries of the vocabulary.
  std::int64_t vocab_size() const { return vocab_size_; }
  /// The id of the token with this spelling in vocab.json; nothing if there is none.
  std::optional<std::int32_t> find(const std::string& spelt) const;
  /// The bytes of a token; U+FFFD if `id` is not a token.
  std::string bytes(std::int32_t id) const;

  /// Working memory of `encode`, which the caller keeps between calls. Not shared between threads.
  struct Scratch {
    struct Candidate {
      std::uint32_t rank, at;
    };
    std::vector<std::int32_t> symbols, next, previous;
    std::vector<Candidate> heap, fresh;
  };

  /// Appends the ids of one piece of text to `ids`: repeatedly merges the adjacent pair of lowest rank, at all its
  /// occurrences from left to right. A byte that is not in the vocabulary gets id 0, as in Megatron-LM.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids, Scratch& scratch) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t symbol;
  };
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    Merge merge{};
  };
  struct Entry {
    std::int32_t id = -1;      // in the vocabulary; -1: only in the merges
    std::int32_t symbol = -1;  // number while merging; -1: only in the vocabulary
  };
  static constexpr std::uint32_t no_rank = ~std::uint32_t{0};

  void read_vocabulary(const std::string& file);
  void read_merges(const std::string& file, const std::string& vocab_file);
  void add_token(const std::string& file, std::string&& spelt, std::uint64_t id);
  std::int32_t symbol(const std::string& spelt);
  void fill_slots(const std::vector<std::pair<std::uint64_t, Merge>>& merges);
  Merge merge_of(std::int32_t left, std::int32_t right) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(Scratch& scratch) const;
  void join(Scratch& scratch, std::uint32_t at, const Merge& merge) const;

  ByteSpelling spelling_;
  std::unordered_map<std::string, Entry> entries_;  // by spelt token
  std::int64_t vocab_size_ = 0;
  std::vector<std::string> bytes_;        // id -> bytes
  std::vector<std::int32_t> symbol_ids_;  // symbol -> id
  std::array<std::int32_t, 256> byte_symbols_{};
  std::vector<Slot> slots_;        // pair of symbols -> merge; open addressing
  std::vector<Merge> byte_pairs_;  // [256][256], the merges of two bytes: most lookups need only this small table
};

}  // namespace tessera::tokenizers
