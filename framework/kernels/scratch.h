#pragma once

#include <cstddef>
#include <span>

namespace tessera::kernels {

/// A lease of scratch memory of the calling thread, for the lifetime of this local variable: `floats` floats, 64-byte
/// aligned, uninitialized (NaN without NDEBUG). A lease takes a buffer that no other lease of the thread holds, so
/// kernels that call each other never share memory. Leases of one thread end in the reverse order in which they began,
/// as local variables do. Tiles that run in other threads may use the memory while its owner waits for them.
///
/// The thread owns the buffers; they only grow. Every thread of a pool starts with `ready_buffers` buffers of
/// `ready_floats` floats each. They take no memory until they are written, and leases within these sizes never
/// allocate.
class Scratch {
 public:
  static constexpr std::size_t ready_floats = std::size_t{1} << 20;
  static constexpr std::size_t ready_buffers = 8;
  static constexpr std::size_t most_buffers = 16;  ///< maximum number of leases that a thread may hold at a time

  /// 0 floats: leases nothing, and data() is null. Throws BugError if the thread already holds `most_buffers` leases.
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

/// As Scratch, for doubles.
class DoubleScratch {
 public:
  explicit DoubleScratch(std::size_t doubles) : memory_(2 * doubles) {}
  /// Exactly the doubles that were requested.
  std::span<double> all() const { return {reinterpret_cast<double*>(memory_.data()), memory_.floats().size() / 2}; }

 private:
  Scratch memory_;
};

/// Allocates the `ready_buffers` of the calling thread.
void prepare_scratch();

/// Marks the calling thread as running tiles of a loop while this object exists: its leases are then not counted by
/// workspace_bytes(). Internal to Threads.
class TilesOfLoop {
 public:
  TilesOfLoop();
  ~TilesOfLoop();
  TilesOfLoop(const TilesOfLoop&) = delete;
  TilesOfLoop& operator=(const TilesOfLoop&) = delete;
};

/// Workspace of operations, in bytes: for each buffer of the calling thread, the largest lease outside of loops since
/// the last forget_workspace(), added up. Leases of the tiles of a loop, a few MiB per thread, are not counted.
std::size_t workspace_bytes();
/// Resets workspace_bytes() of the calling thread to 0.
void forget_workspace();

}  // namespace tessera::kernels
