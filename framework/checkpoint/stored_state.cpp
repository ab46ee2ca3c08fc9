#include "framework/checkpoint/stored_state.h"

#include <cstring>

#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/weight_source.h"

namespace tessera::checkpoint {

std::span<const std::byte> StoredState::bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const {
  auto range = ranges_.at(index);
  const auto type = range.tensor.dtype();
  const auto box = Box::of(range.offsets, range.tensor.shape());
  const auto row_bytes = static_cast<std::size_t>(box.elements_of_row()) * size_of(type);
  if (buffer.empty() || row_bytes == 0) return buffer;
  const auto begin = first / row_bytes, end = (first + buffer.size() + row_bytes - 1) / row_bytes;
  rows_.resize((end - begin) * row_bytes);
  auto extent = box.extent;
  extent[0] = static_cast<std::int64_t>(end - begin);
  range.offsets = box.begin;
  range.offsets[0] += static_cast<std::int64_t>(begin);
  range.tensor = Tensor(std::span(rows_), type, Shape(extent));
  if (from_.shape(range.name) == range.global_shape)
    from_.read(range, {.check_crc = false, .convert = true});
  else
    read_other_padding(CheckpointWeights(from_), range);
  std::memcpy(buffer.data(), rows_.data() + (first - begin * row_bytes), buffer.size());
  return buffer;
}

std::uint64_t bytes_of_save(const ForeignSave& save, const Checkpoint& from) {
  const bool masters = save.layout.distributed_optimizer || save.type != DType::float32;
  const auto of_weight = size_of(save.type) + (masters ? sizeof(float) : 0);
  std::uint64_t bytes = 0;
  for (const auto& name : from.names())
    bytes += static_cast<std::uint64_t>(from.shape(name).elements()) *
             (is_optimizer_state(name) ? sizeof(float) : of_weight);
  return bytes;
}

}  // namespace tessera::checkpoint
