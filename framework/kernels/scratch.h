#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace tessera {

/// Memory of the calling thread that only ever grows, one run for each `Use`, aligned to 64 bytes: a kernel that asks
/// for no more than before allocates nothing. The content is what was left there. The span is good until the same
/// thread asks for the same Use again, so a Use belongs to one function.
template <class Use>
std::span<float> scratch(std::size_t floats) {
  struct Free {
    void operator()(float* at) const { ::operator delete(at, std::align_val_t(64)); }
  };
  static thread_local std::unique_ptr<float, Free> memory;
  static thread_local std::size_t size = 0;
  if (size < floats) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t(64))));
    size = floats;
  }
  return {memory.get(), floats};
}

}  // namespace tessera
