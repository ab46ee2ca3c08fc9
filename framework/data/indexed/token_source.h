#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::data {

/// Sequences of tokens by number, of any length: what datasets cut their samples from. Reading is const, allocates
/// nothing and may be done by several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t sequences() const = 0;
  /// Tokens in a sequence.
  virtual std::int64_t length(std::int64_t sequence) const = 0;
  /// All lengths in a row, int32 and not always aligned, for those who read millions; null: only length() has them.
  virtual const std::byte* lengths() const { return nullptr; }
  /// Tokens [offset, offset + out.size()) of a sequence. Throws BadSampleError for an id that does not fit into 32 bits
  /// and for bytes whose checksum is wrong; IoError if the system cannot read them.
  virtual void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const = 0;
  /// Number of the document that a sequence belongs to, from 0.
  virtual std::int64_t document_of(std::int64_t sequence) const { return sequence; }
  /// "corpus.bin: document 3, token 17": where a token is, for messages.
  virtual std::string place(std::int64_t sequence, std::int64_t offset) const = 0;
};

}  // namespace tessera::data
