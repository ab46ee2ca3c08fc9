#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/data/indexed/token_checksums.h"
#include "framework/data/indexed/token_source.h"
#include "framework/data/preprocessing/append_file.h"

namespace tessera::data {

/// Types of tokens in a .bin file, by the code that the .idx file gives. 6 and 7 are floating point and hold no tokens.
enum class TokenType : std::uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };
std::size_t size_of(TokenType type);
const char* name_of(TokenType type);
/// What files of tokens of a vocabulary are written in: uint16 below 65500 entries, else int32.
TokenType token_type_for(std::int64_t vocab_size);

/// The first 34 bytes of an .idx file. `bounds`: number of document bounds, documents + 1.
std::string token_index_header(TokenType type, std::int64_t sequences, std::int64_t bounds);

/// Reader of PREFIX.bin and PREFIX.idx, the format of Megatron-LM's IndexedDataset; docs/data.md has every byte. Both
/// files are mapped, the .bin file only if that is asked for. Opening reads the whole index, 20 bytes for each
/// sequence, and no token.
class IndexedDataset final : public TokenSource {
 public:
  /// `map_data` false: tokens are read from the .bin file with plain reads, for file systems where mapping is slow.
  /// Throws ConfigError when a file is missing, is not of this format or version, or when a field of the index is not
  /// what it can be: every sequence lies inside the .bin file, and documents are sequences in their order. If there is
  /// PREFIX.crc, the index is compared with it now, and each chunk of tokens whenever it is read.
  explicit IndexedDataset(std::string prefix, bool map_data = true);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t sequences() const override { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t length(std::int64_t sequence) const override;
  const std::byte* lengths() const override { return lengths_; }
  /// The first sequence of a document; of `documents()`: the number of sequences. A document is a run of sequences, an
  /// empty one has none.
  std::int64_t first_sequence(std::int64_t document) const;
  /// Throws BadSampleError, naming the place, for a token of an int64 file that does not fit into 32 bits and for bytes
  /// whose checksum is wrong; IoError if the system cannot read them.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const override;
  std::int64_t document_of(std::int64_t sequence) const override;
  std::string place(std::int64_t sequence, std::int64_t offset) const override;
  /// Whether the index has a mode for each sequence, as Megatron-LM writes for multimodal datasets.
  bool has_modes() const { return modes_ != nullptr; }
  /// Mode of a sequence; 0 if the index has none.
  std::int8_t mode(std::int64_t sequence) const;
  /// Offset of a sequence in the .bin file, in bytes.
  std::int64_t first_byte(std::int64_t sequence) const;

 private:
  void read_header();
  void check_sequences();
  void check_documents() const;
  std::uint64_t data_size() const;
  [[noreturn]] void refuse_page() const;
  void verify(std::uint64_t first, std::uint64_t end) const;
  void read_bytes(std::uint64_t first, std::span<std::byte> into) const;
  void convert(const std::byte* from, std::span<std::int32_t> out) const;
  void read_mapped(const std::byte* from, std::span<std::int32_t> out) const;
  void read_wide(std::int64_t sequence, std::int64_t offset, std::uint64_t from, std::span<std::int32_t> out) const;

  std::string prefix_;
  MappedFile index_;
  std::optional<MappedFile> data_;  ///< one of the two
  std::optional<File> plain_data_;
  std::optional<TokenChecksums> checksums_;
  TokenType type_ = TokenType::uint16;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  const std::byte *lengths_ = nullptr, *pointers_ = nullptr,
                  *first_sequences_ = nullptr,  // int32, int64, int64; not aligned
                      *modes_ = nullptr;        // int8; null: there are none
};

/// Writes PREFIX.bin and PREFIX.idx, byte for byte as Megatron-LM's IndexedDatasetBuilder. Both are written under
/// temporary names, *.unfinished, and get their own at `finish`; a builder that is destroyed before removes them. The
/// parts of the index go to the disk too, so memory does not grow with the dataset. Throws IoError if the disk refuses.
class IndexedDatasetBuilder {
 public:
  /// What a builder has written so far: where a later one can continue.
  struct State {
    std::int64_t sequences = 0, documents = 0, tokens = 0;
  };
  /// Every file that a builder writes for `prefix`, temporary ones included.
  static std::vector<std::filesystem::path> files(const std::string& prefix);

  /// Throws ConfigError if the files cannot be created, or for int64.
  IndexedDatasetBuilder(std::string prefix, TokenType type);
  /// Continues the temporary files of a builder that reached `state` and ended in any way after that; what it wrote
  /// later is dropped. Throws IoError if they are missing or shorter.
  IndexedDatasetBuilder(std::string prefix, TokenType type, const State& state);
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;
  ~IndexedDatasetBuilder();

  void add_sequence(std::span<const std::int32_t> tokens);
  /// Ends a document: the sequences added since the last call. It may have none.
  void end_document();
  /// Several documents at once: their tokens in the type of the file, the number of tokens of each sequence, and the
  /// number of sequences of each document.
  void add_documents(std::span<const std::byte> tokens, std::span<const std::int32_t> lengths,
                     std::span<const std::int32_t> sequences);
  /// Appends all of another dataset. Throws ConfigError if its type is another.
  void add(const IndexedDataset& other);
  void add(IndexedDatasetBuilder& other);

  State state() const { return {sequences_, documents_, tokens_}; }
  /// Passes what is buffered to the system. Needed before go_back() to this state.
  void flush();
  /// Brings everything up to now to the disk, so that a builder can continue from the returned state after a crash.
  State sync();
  /// From now on the destructor leaves the temporary files where they are.
  void keep() { keep_ = true; }
  /// Drops what was added after `state`, which must have been flushed. Frees disk space.
  void go_back(const State& state);

  /// Completes both files, synced, still under their temporary names.
  void seal();
  /// Gives sealed files their names; does nothing for those that have them already.
  static void publish(const std::string& prefix);
  /// seal() and publish().
  void finish();

  std::int64_t sequences() const { return sequences_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  void add_index(std::span<const std::int32_t> lengths, std::span<const std::int32_t> sequences);
  void check_type() const;

  std::string prefix_;
  TokenType type_;
  AppendFile data_;
  AppendFile lengths_;             // the index: a gap for its header, then the lengths; seal() appends the rest
  AppendFile documents_of_index_;  // the index's last part
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  bool keep_ = false;
};

}  // namespace tessera::data
