#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "framework/checkpoint/state_snapshot.h"
#include "framework/tensor/arena.h"

namespace tessera::checkpoint {

/// Memory for the copies of one snapshot after the other: a page that is used again costs nothing, a fresh one more
/// than the copy that goes there. Thread-safe.
class CopyMemory {
 public:
  /// At least `bytes`, not initialized. Throws Error if the system refuses the address space.
  Storage take(std::size_t bytes);
  /// Keeps it for the next take().
  void give_back(Storage memory) noexcept;

 private:
  std::mutex mutex_;
  Storage kept_;
};

/// The state as it was when this object was made, without a copy of all of it: whoever changes a part of the state
/// calls before_change() first, which copies the blocks that this part touches, unless they are already copied or
/// read. Reading waits for no change, and a change waits only for another thread that is copying the same block.
///
/// Memory: address space as large as the ranges; of it, pages are used for the blocks that are copied, until the
/// CopyMemory is deleted, or without one this object.
class OpenedState final : public StateSnapshot {
 public:
  /// What is copied when it changes: 32,768 elements of fp32, one piece of an update (ShardedUpdate).
  static constexpr std::size_t block_bytes = std::size_t{128} << 10;

  /// How the elements are read by bytes().
  enum class Reading {
    once,  ///< each range from its first byte to its last, once: what was read may change without a copy (BugError)
    any    ///< in any order, and repeatedly: a copy is made of all that changes before end_reading()
  };
  /// The memory of the tensors must outlive this object, and change only after before_change(). Throws Error if the
  /// system refuses the address space. `copies`: where the memory comes from and goes back to; null: it is freed.
  OpenedState(std::vector<TensorRange> ranges, Blobs blobs, Reading reading, std::shared_ptr<CopyMemory> copies = {});
  ~OpenedState() override;

  /// Copies into `buffer`.
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override;
  void end_reading() const override { ended_.store(true, std::memory_order_release); }

  /// Call it before any byte of `memory` changes, which may be memory of several ranges, of none, or of parts of them.
  /// When it returns the memory may change. Thread-safe.
  void before_change(std::span<const std::byte> memory);
  /// Bytes of the blocks that were copied.
  std::size_t copied_bytes() const { return copied_.load(std::memory_order_relaxed); }

 private:
  enum class Block : std::uint8_t {
    live,     ///< the state has its elements
    copying,  ///< a thread is copying them
    copied,   ///< the copy has them; the state may differ
    read      ///< nothing will be read of it any more
  };
  struct Place {
    const std::byte* memory;  ///< of the range
    std::size_t bytes;
    std::size_t first_block;  ///< index of its first block
    std::size_t copy;         ///< offset of its copy
  };

  bool protect(const Place& place, std::size_t block);
  void read(std::size_t index, std::size_t first, std::span<std::byte> into) const;

  Reading reading_;
  std::vector<Place> places_;            ///< of each range
  std::vector<std::size_t> by_address_;  ///< indices of ranges that are not empty, in the order of their memory
  std::unique_ptr<std::atomic<Block>[]> blocks_;
  std::shared_ptr<CopyMemory> copies_;
  Storage copy_;
  mutable std::vector<std::size_t> read_;  ///< bytes that were read of each range; Reading::once
  mutable std::atomic<bool> ended_ = false;
  std::atomic<std::size_t> copied_ = 0;
};

}  // namespace tessera::checkpoint
