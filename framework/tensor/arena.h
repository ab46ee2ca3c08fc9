#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/tensor/tensor.h"

namespace tessera {

class Arena;

/// A share in one block of an Arena. Copies share it; the block is free again when the last share is gone. Owns nothing
/// on the heap. Not thread-safe: activations are made and dropped by the one thread that drives the step.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory& other);
  Memory(Memory&& other) noexcept : arena_(other.arena_), block_(other.block_) { other.arena_ = nullptr; }
  Memory& operator=(Memory other) noexcept;
  ~Memory();

  bool empty() const { return arena_ == nullptr; }
  bool shared() const;  ///< somebody else holds the same block
  std::span<std::byte> bytes() const;

 private:
  friend class Arena;
  Memory(Arena* arena, std::uint32_t block) : arena_(arena), block_(block) {}
  Arena* arena_ = nullptr;
  std::uint32_t block_ = 0;
};

/// Memory for activations and their gradients: one range of addresses reserved once, handed out first-fit by address
/// and returned in any order, so that several tapes may be alive at once. Memory is touched in slabs that are counted
/// and kept: a step no larger than one seen before takes neither new slabs nor the heap.
class Arena {
 public:
  static constexpr std::size_t slab_bytes = std::size_t{32} << 20;

  /// Reserve addresses only; nothing is touched. Throws Error when the system gives no addresses.
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block of at least `bytes`, aligned to 64, with arbitrary content. Throws Error when the reserved range is full.
  Memory allocate(std::size_t bytes);

  /// A number never given before by this arena: tells the passes of its tapes apart.
  std::uint64_t ticket() { return ++tickets_; }

  std::size_t in_use() const { return in_use_; }          ///< bytes handed out now
  std::size_t high_water() const { return high_water_; }  ///< most address range in use at once, bytes
  std::size_t slabs() const { return slabs_; }            ///< slabs touched so far

 private:
  friend class Memory;
  struct Block {
    std::size_t offset = 0, bytes = 0;
    std::uint32_t shares = 0;
    std::uint32_t before = none, after = none;  ///< neighbours by address
    bool free = false;
  };
  static constexpr std::uint32_t none = 0xffffffff;

  std::uint32_t first_fit(std::size_t bytes);
  std::uint32_t append(std::size_t bytes);
  std::uint32_t fresh_index();
  void split(std::uint32_t block, std::size_t bytes);
  void release(std::uint32_t block);
  void absorb_next(std::uint32_t block);
  void touch(std::size_t end);

  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0, in_use_ = 0, high_water_ = 0, slabs_ = 0, free_blocks_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> unused_;  ///< indices of blocks_ to use again
  std::uint32_t first_ = none, last_ = none;
  std::uint64_t tickets_ = 0;
};

/// Pages of the system for what lives as long as the run (weights, gradients, optimizer state): zeroed, aligned, on
/// huge pages where the system has them. Owns its memory; moves, does not copy.
class Storage {
 public:
  Storage() = default;
  /// Throws Error, saying how much was asked for, when the system refuses.
  explicit Storage(std::size_t bytes);
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;
  ~Storage();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::span<float> floats() const { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tessera
