#pragma once

#include <cstddef>
#include <span>

namespace tessera::kernels {

/// Scratch memory of the calling thread, leased for as long as this local variable lives: `floats` floats, 64-byte
/// aligned, uninitialized. A lease takes a buffer that no other lease of the thread holds, so kernels that call each
/// other never share memory. Leases of one thread end in the reverse order in which they began, as local variables do.
/// Tiles that run in other threads may use the memory while the owner waits for them.
///
/// The thread owns the buffers; they only grow. Every thread of a pool begins with `ready_floats` floats in each of
/// `ready_buffers`; that is address space only until it is touched, and within these sizes nothing is allocated later.
class Scratch {
 public:
  static constexpr std::size_t ready_floats = std::size_t{1} << 20;
  static constexpr std::size_t ready_buffers = 8;
  static constexpr std::size_t most_buffers = 16;  ///< that a thread may hold at a time

  /// With 0 floats it leases nothing and data() is null. Throws BugError if the thread holds `most_buffers` leases.
  explicit Scratch(std::size_t floats);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  static void* operator new(std::size_t) = delete;  ///< a local variable only: leases end in reverse order

  float* data() const { return floats_.data(); }
  /// Exactly the floats that were requested.
  std::span<float> floats() const { return floats_; }

 private:
  std::span<float> floats_;
};

/// The same for doubles.
class DoubleScratch {
 public:
  explicit DoubleScratch(std::size_t doubles) : memory_(2 * doubles) {}
  std::span<double> all() const { return {reinterpret_cast<double*>(memory_.data()), memory_.floats().size() / 2}; }

 private:
  Scratch memory_;
};

/// Makes the calling thread's ready buffers.
void prepare_scratch();

/// While this exists, the calling thread runs tiles of a loop. Internal to Threads.
class TilesOfLoop {
 public:
  TilesOfLoop();
  ~TilesOfLoop();
  TilesOfLoop(const TilesOfLoop&) = delete;
  TilesOfLoop& operator=(const TilesOfLoop&) = delete;
};

/// The workspace of operations: the most that the calling thread has leased for whole loops, in bytes, since it was
/// forgotten last. What the tiles of a loop lease is not in it: that is a few MiB for each thread.
std::size_t workspace_bytes();
void forget_workspace();

}  // namespace tessera::kernels
