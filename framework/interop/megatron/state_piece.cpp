#include "framework/interop/megatron/state_piece.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/weight_source.h"

namespace tessera::megatron {
namespace {

constexpr std::int64_t streamed_elements = std::int64_t{1} << 18;  // converted at a time

/// Elements of `range` as `type`. Throws ConfigError if one is too large for it.
std::span<const std::byte> converted(std::span<const std::byte> bytes, const checkpoint::TensorRange& range,
                                     std::span<std::byte> into, DType type) {
  const auto from = range.tensor.dtype();
  const Shape shape{static_cast<std::int64_t>(bytes.size() / size_of(from))};
  const std::span<std::byte> source(const_cast<std::byte*>(bytes.data()), bytes.size());  // only read
  const Tensor elements(into, type, shape);
  checkpoint::copy_converted(Tensor(source, from, shape), elements);
  if (type == DType::float16) checkpoint::must_be_finite(elements, text("tensor '", range.name, "' as float16"));
  return into;
}

}  // namespace

void StatePiece::pour(DType type, const torch::ArchiveWriter::Sink& sink) const {
  const auto& elements = state->ranges()[range];
  const auto from = elements.tensor.dtype();
  const auto size = size_of(from);
  const auto most = static_cast<std::size_t>(std::min(count, streamed_elements));
  std::vector<std::byte> buffer(most * size), other(from == type ? 0 : most * size_of(type));
  for (std::int64_t done = 0; done < count;) {
    const auto now = static_cast<std::size_t>(std::min(count - done, streamed_elements));
    const auto bytes =
        state->bytes(range, static_cast<std::size_t>(first + done) * size, std::span(buffer).first(now * size));
    sink(from == type ? bytes : converted(bytes, elements, std::span(other).first(now * size_of(type)), type));
    done += static_cast<std::int64_t>(now);
  }
}

torch::ArchiveWriter::Stream StatePiece::as(DType type) const {
  return [piece = *this, type](const torch::ArchiveWriter::Sink& sink) { piece.pour(type, sink); };
}

torch::ArchiveWriter::Stream StatePieces::as(DType type) const {
  return [all = pieces, type](const torch::ArchiveWriter::Sink& sink) {
    for (const auto& piece : all) piece.pour(type, sink);
  };
}

}  // namespace tessera::megatron
