#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/tensor/box.h"

namespace tessera::checkpoint {

/// One stored range with the name and the element type of its tensor.
struct NamedRange {
  std::string name;
  DType type = DType::float32;
  Checkpoint::StoredRange range;

  Box box() const { return Box::of(range.offsets, range.extents); }
};

/// Size of the pieces that are read and checksummed, so that they stay in the processor's cache.
inline constexpr std::size_t read_piece_bytes = std::size_t{1} << 20;

/// Reads a stored range in the order of the file in pieces that are boxes, and sums what it has read. A range has
/// pieces of the same sizes whoever reads it.
class RangeStream {
 public:
  /// `file` and `range` must outlive this object. Pieces have at most `most_bytes` bytes, and at least one element.
  RangeStream(const File& file, const NamedRange& range, std::size_t most_bytes = read_piece_bytes);

  bool ended() const { return first_ == elements_; }
  /// The next piece: its elements are one after the other in the file.
  const Box& box() const { return piece_; }
  std::size_t bytes() const { return static_cast<std::size_t>(piece_.elements()) * size_of(range_.type); }
  /// Reads the next piece into `into`, which has its size, adds it to the checksum if `sum`, and goes on to the piece
  /// behind it. Throws DamageError naming the tensor if the system cannot read it.
  void read(std::span<std::byte> into, bool sum);
  /// Goes on to the piece behind the next one.
  void skip();
  /// Throws DamageError if the pieces that were summed, which are all, do not have the checksum of the range.
  void must_match() const;

 private:
  void find_piece();

  const File& file_;
  const NamedRange& range_;
  Box all_, piece_;
  std::size_t dim_ = 0;                    // pieces have several indices in this dimension and all in later ones
  std::int64_t inner_ = 1;                 // elements of one index in it
  std::int64_t step_ = 1;                  // indices of a piece in it
  std::int64_t first_ = 0, elements_ = 0;  // next element, all elements
  std::uint32_t sum_ = 0;
};

/// Copies what the box of `into` has in common with a piece whose elements, of the type `type`, are in `bytes`.
/// Returns the number of elements.
std::int64_t copy_common(const Box& piece, std::span<const std::byte> bytes, DType type, const TensorRange& into);

/// The memory of `into` that gets the elements of `piece` if they come in the type `type`: where they lie there one
/// after the other, so that they can be read directly; else empty.
std::span<std::byte> place_in(const TensorRange& into, const Box& piece, DType type);

/// Reads the range and copies what it has in common with the box of `into`; with `check`, all of it, and compares its
/// checksum. Throws DamageError.
void read_range(const File& file, const NamedRange& range, const TensorRange& into, bool check);

/// Throws DamageError if the first `bytes` bytes of the file do not have the checksum `sum`.
void header_must_match(const File& file, std::uint64_t bytes, std::uint32_t sum);

}  // namespace tessera::checkpoint
