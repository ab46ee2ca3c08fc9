#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::data {

/// The bytes of an input, decompressed, from the beginning to the end. Errors are ConfigErrors that name the input.
class InputStream {
 public:
  virtual ~InputStream() = default;
  /// Reads at most `size` bytes; fewer only at the end, 0 behind it. Throws ConfigError if the input cannot be read or
  /// decompressed, or is cut off.
  virtual std::size_t read(char* into, std::size_t size) = 0;
  /// Bytes of the stored file that were read: for progress. Not more than size_of_input().
  virtual std::int64_t stored_position() const = 0;
  /// Skips to byte `offset` of the decompressed bytes. Throws ConfigError if there are fewer.
  virtual void skip(std::int64_t offset);
};

/// "-" is standard input. gzip, Zstandard and xz are recognised by their first bytes, whatever the name. Throws
/// ConfigError if the input cannot be opened, or its name ends in .gz, .zst or .xz and its content is something else.
std::unique_ptr<InputStream> open_input(const std::string& name);

/// Whether the bytes can be mapped: a regular file without compression.
bool is_plain_file(const std::string& name);

/// In bytes, as stored; 0 if that is not known in advance (standard input, a pipe).
std::int64_t size_of_input(const std::string& name);

/// `name` without .gz, .zst or .xz.
std::string without_compression_suffix(const std::string& name);

/// Names with *, ? or [...] become the files they match, sorted; a name that exists as it is stays. Throws ConfigError
/// if a pattern matches nothing.
std::vector<std::string> expand_patterns(const std::vector<std::string>& names);

}  // namespace tessera::data
