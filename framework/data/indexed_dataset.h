#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/data/token_source.h"

namespace tessera {

/// Types of tokens in a .bin file, by the code that the .idx file gives. 6 and 7 are floating point and hold no tokens.
enum class TokenType : std::uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };
std::size_t size_of(TokenType type);
const char* name_of(TokenType type);
/// What files of tokens of a vocabulary are written in: uint16 below 65500 entries, else int32.
TokenType token_type_for(std::int64_t vocab_size);

/// Reader of PREFIX.bin and PREFIX.idx, the format of Megatron-LM's IndexedDataset; docs/data.md has every byte. Both
/// files are mapped. Opening reads the whole index, 20 bytes for each sequence, and no token.
class IndexedDataset final : public TokenSource {
 public:
  /// Throws ConfigError when a file is missing, is not of this format or version, or when a field of the index is not
  /// what it can be: every sequence lies inside the .bin file, and documents are sequences in their order.
  explicit IndexedDataset(std::string prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t sequences() const override { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t length(std::int64_t sequence) const override;
  /// The first sequence of a document; of `documents()`: the number of sequences. A document is a run of sequences, an
  /// empty one has none.
  std::int64_t first_sequence(std::int64_t document) const;
  /// Throws ConfigError, naming place and value, for a token of an int64 file that does not fit into 32 bits.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const override;
  std::int64_t document_of(std::int64_t sequence) const override;
  std::string place(std::int64_t sequence, std::int64_t offset) const override;

 private:
  void read_header();
  void check_sequences();
  void check_documents() const;
  void read_wide(std::int64_t sequence, std::int64_t offset, const std::byte* from, std::span<std::int32_t> out) const;

  std::string prefix_;
  MappedFile index_, data_;
  TokenType type_ = TokenType::uint16;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  const std::byte *lengths_ = nullptr, *pointers_ = nullptr,
                  *first_sequences_ = nullptr;  // int32, int64, int64; not aligned
};

/// Writes PREFIX.bin and PREFIX.idx, byte for byte as Megatron-LM's IndexedDatasetBuilder. Both are written under
/// temporary names and get their own at `finish`; a builder that dies before leaves nothing behind.
class IndexedDatasetBuilder {
 public:
  /// Every file that a builder writes for `prefix`, also for a while.
  static std::vector<std::filesystem::path> files(const std::string& prefix);

  /// Throws ConfigError when the files cannot be made there, or for int64.
  IndexedDatasetBuilder(std::string prefix, TokenType type);
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;
  ~IndexedDatasetBuilder();

  void add_sequence(std::span<const std::int32_t> tokens);
  /// What was added since the last call is a document; it may be empty.
  void end_document();
  /// All of another dataset behind what is here. Throws ConfigError when its type is another.
  void add(const IndexedDataset& other);
  /// Write the index and give both files their names.
  void finish();

  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t tokens() const { return tokens_; }

 private:
  void flush();

  std::string prefix_;
  TokenType type_;
  File data_;
  std::string buffer_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> documents_ = {0};
  std::int64_t tokens_ = 0;
  bool finished_ = false;
};

}  // namespace tessera
