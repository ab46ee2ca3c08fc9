#include "framework/training/state/state_memory.h"

namespace tessera::training {

static_assert(comm::GroupBuffer::header_bytes == StateSegment::alignment);

StateMemory::StateMemory(const StateSegment& sizes, const comm::Communicator& data) : own_(sizes.own_bytes) {
  for (std::size_t i = 0; i < state_arrays; ++i) {
    const auto& array = sizes.arrays[i];
    if (!array.exchanged) {
      arrays_[i] = own_.bytes().subspan(array.offset, array.bytes);
      continue;
    }
    must(data.size() > 1, "arrays are exchanged within a group of several ranks");
    buffers_[i] = std::make_unique<comm::GroupBuffer>(data, array.bytes);
    arrays_[i] = buffers_[i]->bytes();
  }
}

StateMemory::StateMemory(const StateSegment& sizes, std::span<std::byte> segment) {
  if (segment.size() < sizes.bytes || reinterpret_cast<std::uintptr_t>(segment.data()) % 64 != 0)
    throw ShapeError(text("state: a segment of ", segment.size(), " bytes at address ",
                          static_cast<const void*>(segment.data()), "; expected ", sizes.bytes,
                          " bytes at a multiple of 64"));
  for (std::size_t i = 0; i < state_arrays; ++i) {
    must(!sizes.arrays[i].exchanged, "memory of the caller is not exchanged between ranks");
    arrays_[i] = segment.subspan(sizes.arrays[i].offset, sizes.arrays[i].bytes);
  }
}

StateMemory::StateMemory(const StateSegment& sizes, int descriptor, std::size_t offset, bool zeros,
                         const comm::Communicator& data) {
  if (sizes.own_bytes > 0) mapped_ = comm::SharedMemory::map(descriptor, offset, sizes.own_bytes);
  mapped_.close_descriptor();
  for (std::size_t i = 0; i < state_arrays; ++i) {
    const auto& array = sizes.arrays[i];
    if (!array.exchanged) {
      if (array.bytes > 0) arrays_[i] = {mapped_.data() + array.offset, array.bytes};
      continue;
    }
    constexpr auto header = comm::GroupBuffer::header_bytes;
    buffers_[i] = std::make_unique<comm::GroupBuffer>(
        data, comm::SharedMemory::map(descriptor, offset + array.offset - header, header + array.bytes), zeros);
    arrays_[i] = buffers_[i]->bytes();
  }
}

std::span<float> StateMemory::floats(StateArray which) {
  const auto raw = bytes(which);
  return {reinterpret_cast<float*>(raw.data()), raw.size() / sizeof(float)};
}

std::span<const float> StateMemory::floats(StateArray which) const {
  const auto raw = bytes(which);
  return {reinterpret_cast<const float*>(raw.data()), raw.size() / sizeof(float)};
}

}  // namespace tessera::training
