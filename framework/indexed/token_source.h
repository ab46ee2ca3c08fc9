#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::indexed {

/// Sequences of tokens of any length, by index, from which datasets cut their samples. Reading is const, thread-safe,
/// and allocates no memory.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t sequences() const = 0;
  /// Length of a sequence, in tokens.
  virtual std::int64_t length(std::int64_t sequence) const = 0;
  /// An array of all lengths, int32 and possibly unaligned, for callers that read millions of them; null: not
  /// available, use length().
  virtual const std::byte* lengths() const { return nullptr; }
  /// Reads tokens [offset, offset + out.size()) of a sequence into `out`. Throws BadSampleError for an id that does not
  /// fit into 32 bits and for bytes with a wrong checksum; IoError if the system cannot read them.
  virtual void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const = 0;
  /// Number of the document that a sequence belongs to, from 0.
  virtual std::int64_t document_of(std::int64_t sequence) const { return sequence; }
  /// Throws IoError if values that lengths() or length() returned may be wrong, because the file could not be read.
  virtual void require_intact() const {}
  /// The position of a token, for messages: "corpus.bin: document 3, token 17".
  virtual std::string place(std::int64_t sequence, std::int64_t offset) const = 0;
};

}  // namespace tessera::indexed
