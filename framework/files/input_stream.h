#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::files {

/// Limit on the size of a document (a line, a paragraph, an element of a list) that is held in memory as a whole, in
/// bytes.
inline constexpr std::size_t most_document_bytes = std::size_t{1} << 30U;

/// Reads an input sequentially and decompresses it. Errors are ConfigErrors that name the input.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Reads at most `size` bytes into `into` and returns their number; fewer only at the end, then 0. Throws ConfigError
  /// if the input cannot be read or decompressed, is cut off, or was truncated after it was opened.
  virtual std::size_t read(char* into, std::size_t size) = 0;
  /// Stored (compressed) bytes that were read, for progress; at most size_of_input().
  virtual std::int64_t stored_position() const = 0;
  /// Skips to byte `offset` of the decompressed bytes. Throws ConfigError if there are fewer.
  virtual void skip(std::int64_t offset);
};

/// Opens an input; "-" is standard input. gzip, Zstandard and xz are detected by their first bytes, independent of the
/// name. All members, frames and streams of a compressed input are read, as `gzip -dc`, `zstd -dc` and `xz -dc` read
/// them: also skippable frames of Zstandard at any place (the seekable format, pzstd), padding between xz streams, and
/// zeros between or behind gzip members. Other bytes behind them are an error. Throws ConfigError if the input cannot
/// be opened, or its name ends in .gz, .zst or .xz and its content is something else.
std::unique_ptr<InputStream> open_input(const std::string& name);

/// Throws ConfigError if the input does not exist, is a folder, or is a regular file that open_input() refuses. Takes
/// no byte from a pipe.
void check_input(const std::string& name);

/// Whether the input gives its bytes only once: standard input, a pipe, a device.
bool is_read_once(const std::string& name);

/// Throws ConfigError if the input gives its bytes only once. `reason` says what reads it twice: "--partitions counts
/// its lines first".
void refuse_read_once(const std::string& name, const std::string& reason);

/// Throws ConfigError if `begin`, the first bytes of the file `name`, are those of a compressed file.
void refuse_compressed(const std::string& name, std::string_view begin);

/// Whether the file can be memory-mapped: it is a regular file without compression.
bool is_plain_file(const std::string& name);

/// Stored size of the input, in bytes; 0 if unknown in advance (standard input, a pipe).
std::int64_t size_of_input(const std::string& name);

/// `name` without .gz, .zst or .xz.
std::string without_compression_suffix(const std::string& name);

/// Replaces names with *, ? or [...] by the files they match, sorted; the name of an existing file is kept. Throws
/// ConfigError if a pattern matches nothing.
std::vector<std::string> expand_patterns(const std::vector<std::string>& names);

}  // namespace tessera::files
