#pragma once

#include <cstddef>
#include <span>

namespace tessera {

/// Scratch memory of the calling thread, leased as long as this object lives: at least `floats` floats, 64-byte aligned,
/// uninitialized. Kernels that call each other never get the same memory, because a lease takes a buffer that no other
/// lease of the thread holds. Leases of one thread end in the reverse order in which they began, as local variables do;
/// other threads may use the memory of a lease, but not end it.
///
/// A buffer only grows. Every thread of a pool begins with `ready_floats` floats in each of `ready_buffers`; that is
/// address space only until it is touched, and within these sizes nothing is allocated later.
class Scratch {
 public:
  static constexpr std::size_t ready_floats = std::size_t{1} << 20;
  static constexpr std::size_t ready_buffers = 8;
  static constexpr std::size_t most_buffers = 16;  ///< that a thread may hold at a time

  /// Throws BugError if the thread holds `most_buffers` leases.
  explicit Scratch(std::size_t floats);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  float* data() const { return floats_.data(); }
  /// Exactly as many as were asked for.
  std::span<float> floats() const { return floats_; }

 private:
  std::span<float> floats_;
};

/// Makes the calling thread's ready buffers.
void prepare_scratch();

}  // namespace tessera
