#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/files/append_file.h"
#include "framework/indexed/token_checksums.h"
#include "framework/indexed/token_source.h"

namespace tessera::indexed {

/// Element types of a .bin file, with their codes in the .idx file. Codes 6 and 7 are floating-point types, which hold
/// no tokens.
enum class TokenType : std::uint8_t { uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, uint16 = 8 };
/// Size of one token, in bytes.
std::size_t size_of(TokenType type);
const char* name_of(TokenType type);
/// The type in which token files are written for a vocabulary of this size: uint16 below 65500 entries, else int32, as
/// in Megatron-LM.
TokenType token_type_for(std::int64_t vocab_size);

/// The header (first 34 bytes) of an .idx file. `bounds`: number of document bounds, which is documents + 1.
std::string token_index_header(TokenType type, std::int64_t sequences, std::int64_t bounds);

/// Reads PREFIX.bin and PREFIX.idx, the format of Megatron-LM's IndexedDataset; docs/data.md describes every byte. The
/// .idx file is memory-mapped; the .bin file only on request. Opening reads the whole index, 20 bytes per sequence, but
/// no tokens.
class IndexedDataset final : public TokenSource {
 public:
  /// `map_data` false: tokens are read from the .bin file with pread, for file systems where mapping is slow. Throws
  /// ConfigError if a file is missing or is not of this format or version, or if the index is invalid: every sequence
  /// must be inside the .bin file, and documents must be consecutive sequences. If PREFIX.crc exists, the checksum of
  /// the index is verified now, and that of each chunk of tokens whenever it is read.
  explicit IndexedDataset(std::string prefix, bool map_data = true);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t sequences() const override { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t length(std::int64_t sequence) const override;
  const std::byte* lengths() const override { return lengths_; }
  /// The first sequence of a document; for `document` == documents(), the number of sequences. A document consists of
  /// consecutive sequences; an empty document has none.
  std::int64_t first_sequence(std::int64_t document) const;
  /// Throws BadSampleError, naming the position, for a token of an int64 file that does not fit into 32 bits and for
  /// bytes with a wrong checksum; IoError if the system cannot read them.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const override;
  /// Throws BadSampleError if bytes [first, end) of the .bin file lie in a chunk whose checksum is wrong; nothing
  /// without PREFIX.crc.
  void verify_bytes(std::uint64_t first, std::uint64_t end) const {
    if (checksums_) verify(first, end);
  }
  void require_intact() const override { index_.require_intact(); }
  std::int64_t document_of(std::int64_t sequence) const override;
  std::string place(std::int64_t sequence, std::int64_t offset) const override;
  /// Whether the index has a mode for each sequence, as in Megatron-LM's multimodal datasets.
  bool has_modes() const { return modes_ != nullptr; }
  /// Mode of a sequence; 0 if the index has none.
  std::int8_t mode(std::int64_t sequence) const;
  /// Offset of a sequence in the .bin file, in bytes.
  std::int64_t first_byte(std::int64_t sequence) const;

 private:
  std::int64_t check_index();
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
  std::optional<MappedFile> data_;  ///< with map_data; else plain_data_
  std::optional<File> plain_data_;
  std::optional<TokenChecksums> checksums_;
  TokenType type_ = TokenType::uint16;
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  const std::byte *lengths_ = nullptr, *pointers_ = nullptr,
                  *first_sequences_ = nullptr,  // int32, int64, int64; not aligned
                      *modes_ = nullptr;        // int8; null: there are none
};

/// Writes PREFIX.bin and PREFIX.idx, byte for byte as Megatron-LM's IndexedDatasetBuilder does. Both are written under
/// temporary names, *.unfinished, and renamed by `finish`; the destructor of an unfinished builder deletes them. The
/// parts of the index are also written to disk, so memory does not grow with the dataset. All members throw IoError if
/// writing fails.
class IndexedDatasetBuilder {
 public:
  /// The amount that a builder has written; a later builder can continue from there.
  struct State {
    std::int64_t sequences = 0, documents = 0, tokens = 0;
  };
  /// Every file that a builder writes for `prefix`, temporary ones included.
  static std::vector<std::filesystem::path> files(const std::string& prefix);

  /// Creates the temporary files. Throws ConfigError if they cannot be created, if another process is writing them, or
  /// if `type` is int64.
  IndexedDatasetBuilder(std::string prefix, TokenType type);
  /// Continues the temporary files of an earlier builder that reached `state` and then ended in any way; everything
  /// written after `state` is dropped. Throws IoError if the files are missing or too short.
  IndexedDatasetBuilder(std::string prefix, TokenType type, const State& state);
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;
  ~IndexedDatasetBuilder();

  void add_sequence(std::span<const std::int32_t> tokens);
  /// Ends a document, which consists of the sequences added since the last call. It may be empty.
  void end_document();
  /// Adds several documents at once: `tokens` in the type of the file, `lengths` in tokens of each sequence, and
  /// `sequences` of each document.
  void add_documents(std::span<const std::byte> tokens, std::span<const std::int32_t> lengths,
                     std::span<const std::int32_t> sequences);
  /// Appends all documents of another dataset. Throws ConfigError if its type differs.
  void add(const IndexedDataset& other);
  void add(IndexedDatasetBuilder& other);

  State state() const { return {sequences_, documents_, tokens_}; }
  /// Writes buffered data to the files. Required before go_back() to the current state.
  void flush();
  /// Syncs everything written so far to disk, so that a builder can continue from the returned state after a crash.
  State sync();
  /// After this call, the destructor does not delete the temporary files.
  void keep() { keep_ = true; }
  /// Drops everything added after `state`, which must have been flushed. Frees disk space.
  void go_back(const State& state);

  /// Completes and syncs both files, still under their temporary names.
  void seal();
  /// False if another process has replaced the temporary files: what was written is lost. require_own_files() then
  /// throws IoError.
  bool has_own_files() const;
  void require_own_files() const;
  /// Renames the sealed files to their final names. Throws IoError as require_own_files() does.
  void publish();
  /// Renames the files of `prefix`, which a process sealed that ended; does nothing for files that were renamed
  /// already. Throws ConfigError if a process is still writing them.
  static void publish(const std::string& prefix);
  /// Throws ConfigError if a process is writing the files of `prefix`.
  static void refuse_if_open(const std::string& prefix);
  /// Completes both files and renames them: seal() and publish().
  void finish();

  std::int64_t sequences() const { return sequences_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  void add_index(std::span<const std::int32_t> lengths, std::span<const std::int32_t> sequences);
  void check_type() const;

  std::string prefix_;
  TokenType type_;
  files::AppendFile data_;
  files::AppendFile lengths_;             // the index: a gap for its header, then the lengths; seal() appends the rest
  files::AppendFile documents_of_index_;  // the index's last part
  std::int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  bool keep_ = false;
};

}  // namespace tessera::indexed
