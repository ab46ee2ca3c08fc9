#include "framework/checkpoint/range_stream.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "framework/base/crc32c.h"
#include "framework/checkpoint/copy_converted.h"

namespace tessera::checkpoint {
namespace {

constexpr const char* other_sum = ": its CRC is not the one it was saved with";

/// The rows of the range that `box` has a part of; they have no checksum of their own.
NamedRange rows_in(const NamedRange& range, const Box& box) {
  auto rows = range;
  if (range.range.extents.rank() == 0) return rows;
  const auto all = range.box();
  const auto row_bytes = static_cast<std::uint64_t>(all.elements_of_row()) * size_of(range.type);
  std::vector<std::int64_t> extents(all.extent);
  extents[0] = box.extent[0];
  rows.range.byte_offset += static_cast<std::uint64_t>(box.begin[0] - all.begin[0]) * row_bytes;
  rows.range.bytes = static_cast<std::uint64_t>(extents[0]) * row_bytes;
  rows.range.offsets[0] = box.begin[0];
  rows.range.extents = Shape(extents);
  return rows;
}

}  // namespace

RangeStream::RangeStream(const File& file, const NamedRange& range, std::size_t most_bytes)
    : file_(file), range_(range), all_(range.box()), piece_(all_), elements_(all_.elements()) {
  const auto most = std::max<std::int64_t>(1, static_cast<std::int64_t>(most_bytes / size_of(range.type)));
  inner_ = elements_ == 0 ? 1 : all_.elements_of_row();
  while (inner_ > most) inner_ /= all_.extent[++dim_];
  step_ = std::max<std::int64_t>(1, most / inner_);
  find_piece();
}

void RangeStream::find_piece() {
  if (ended()) return;
  auto place = first_ / inner_;
  for (auto dim = dim_ + 1; dim-- > 0; place /= all_.extent[dim]) {
    piece_.begin[dim] = all_.begin[dim] + place % all_.extent[dim];
    piece_.extent[dim] = 1;
  }
  piece_.extent[dim_] = std::min(step_, all_.begin[dim_] + all_.extent[dim_] - piece_.begin[dim_]);
}

void RangeStream::read(std::span<std::byte> into, bool sum) {
  try {
    file_.read_at(range_.range.byte_offset + static_cast<std::uint64_t>(first_) * size_of(range_.type), into);
  } catch (const IoError& error) {
    throw DamageError(text(error.what(), " (tensor '", range_.name, "')"));
  }
  if (sum) sum_ = crc32c(into, sum_);
  skip();
}

void RangeStream::skip() {
  first_ += piece_.elements();
  find_piece();
}

void RangeStream::must_match() const {
  if (sum_ != range_.range.crc)
    throw DamageError(
        text(file_.path().string(), ": tensor '", range_.name, "' at byte ", range_.range.byte_offset, other_sum));
}

std::int64_t copy_common(const Box& piece, std::span<const std::byte> bytes, DType type, const TensorRange& into) {
  const auto box = Box::of(into.offsets, into.tensor.shape());
  const auto common = intersection(piece, box);
  if (!common) return 0;
  // A tensor has no read-only form; nobody writes the elements of this one.
  const std::span memory(const_cast<std::byte*>(bytes.data()), bytes.size());
  copy_box(*common, Tensor(memory, type, Shape{piece.elements()}), piece, into.tensor, box);
  return common->elements();
}

std::span<std::byte> place_in(const TensorRange& into, const Box& piece, DType type) {
  const auto box = Box::of(into.offsets, into.tensor.shape());
  if (into.tensor.dtype() != type || intersection(piece, box) != piece || !is_contiguous(piece, box)) return {};
  return into.tensor.raw().subspan(static_cast<std::size_t>(position_in(box, piece.begin)) * size_of(type),
                                   static_cast<std::size_t>(piece.elements()) * size_of(type));
}

void read_range(const File& file, const NamedRange& range, const TensorRange& into, bool check) {
  const auto box = Box::of(into.offsets, into.tensor.shape());
  const auto common = intersection(range.box(), box);
  if (!common) return;
  const auto needed = check ? range : rows_in(range, *common);
  std::unique_ptr<std::byte[]> buffer;
  RangeStream stream(file, needed);
  const auto most = stream.bytes();  // the first piece is the largest
  while (!stream.ended()) {
    const auto piece = stream.box();
    if (const auto place = place_in(into, piece, range.type); !place.empty()) {
      stream.read(place, check);
    } else if (!check && !intersection(piece, box)) {
      stream.skip();
    } else {
      if (!buffer) buffer = std::make_unique_for_overwrite<std::byte[]>(most);
      const std::span bytes(buffer.get(), stream.bytes());
      stream.read(bytes, check);
      copy_common(piece, bytes, range.type, into);
    }
  }
  if (check) stream.must_match();
}

void header_must_match(const File& file, std::uint64_t bytes, std::uint32_t sum) {
  std::vector<std::byte> header(bytes);
  file.read_at(0, header);
  if (crc32c(header) != sum) throw DamageError(text(file.path().string(), ": header", other_sum));
}

}  // namespace tessera::checkpoint
