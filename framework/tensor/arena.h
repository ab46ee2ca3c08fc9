#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/tensor/tensor.h"

namespace tessera {

class Arena;

/// A reference-counted handle of one block of an Arena. Copies share the block; the destruction of the last handle
/// frees it. Not thread-safe: activations are allocated and freed by the one thread that runs the step. Must not
/// outlive its arena.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory& other);
  Memory(Memory&& other) noexcept : arena_(other.arena_), block_(other.block_) { other.arena_ = nullptr; }
  // Two assignments, none by value: in templates Clang 14 never destroys the parameter of `x = {}`.
  Memory& operator=(const Memory& other);
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  bool empty() const { return arena_ == nullptr; }
  bool shared() const;  ///< whether other handles of the same block exist
  /// The block; at least as long as requested. Empty for an empty handle.
  std::span<std::byte> bytes() const;

 private:
  friend class Arena;
  Memory(Arena* arena, std::uint32_t block) : arena_(arena), block_(block) {}
  Arena* arena_ = nullptr;
  std::uint32_t block_ = 0;
};

/// Memory for activations and their gradients: one address range, reserved once. Blocks are allocated first-fit by
/// address and freed in any order, so that several tapes can be alive at once. Physical memory is taken in slabs of
/// `slab_bytes`, which are counted and never returned to the system, so a step that needs no more memory than an
/// earlier one allocates neither slabs nor heap memory. Not thread-safe.
class Arena {
 public:
  static constexpr std::size_t slab_bytes = std::size_t{32} << 20;

  /// memory: blocks will be written. addresses: blocks are never written, only counted (memory estimates), so the range
  /// can be larger than the memory of any machine.
  enum class Purpose { memory, addresses };
  /// Reserves an address range; uses no memory yet. Throws Error if the system refuses even the smallest range, 4 GiB.
  explicit Arena(Purpose purpose = Purpose::memory);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block of at least `bytes`, 64-byte aligned, uninitialized. Throws Error if the reserved range is exhausted.
  Memory allocate(std::size_t bytes);

  /// Returns a number that this arena has not returned before; tapes use it to distinguish their passes.
  std::uint64_t ticket() { return ++tickets_; }

  std::size_t in_use() const { return in_use_; }          ///< bytes currently allocated
  std::size_t high_water() const { return high_water_; }  ///< maximum address range used so far, in bytes
  std::size_t slabs() const { return slabs_; }            ///< slabs used so far

 private:
  friend class Memory;
  /// A range of addresses, allocated or free; the blocks form a list ordered by address.
  struct Block {
    std::size_t offset = 0, bytes = 0;
    std::uint32_t shares = 0;                   ///< number of handles
    std::uint32_t before = none, after = none;  ///< adjacent blocks
    bool free = false;
  };
  static constexpr std::uint32_t none = 0xffffffff;

  // `block` and results are indices in blocks_.
  /// The first free block of at least `bytes`, or none.
  std::uint32_t first_fit(std::size_t bytes);
  /// A new block after the last block.
  std::uint32_t append(std::size_t bytes);
  std::uint32_t fresh_index();
  /// Shortens a block to `bytes`; the rest becomes a free block.
  void split(std::uint32_t block, std::size_t bytes);
  /// Frees a block, and merges it with free neighbours.
  void release(std::uint32_t block);
  void absorb_next(std::uint32_t block);
  /// Updates high_water_ and slabs_ for the use of addresses up to `end`, a byte offset in the range.
  void touch(std::size_t end);

  const Purpose purpose_;
  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0, in_use_ = 0, high_water_ = 0, slabs_ = 0, free_blocks_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> unused_;  ///< free indices of blocks_
  std::uint32_t first_ = none, last_ = none;
  std::uint64_t tickets_ = 0;
};

/// Memory for data that lives as long as the run (weights, gradients, optimizer state): zero-initialized, page-aligned,
/// on huge pages if the system has them. Owns its memory; movable, not copyable.
class Storage {
 public:
  Storage() = default;
  /// Throws Error with the requested size if the system refuses.
  explicit Storage(std::size_t bytes);
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;
  ~Storage();

  /// The memory, as bytes and as floats; valid as long as this object.
  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::span<float> floats() const { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tessera
