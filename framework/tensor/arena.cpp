#include "framework/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "framework/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t alignment = 64;
// MAP_NORESERVE reserves addresses without memory; the size is halved until the system (ulimit -v) accepts it.
constexpr std::size_t most_reserved = std::size_t{1} << 40, least_reserved = std::size_t{1} << 32,
                      most_counted = std::size_t{1} << 46;  // half of the address space of a process

std::size_t aligned(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

void* map_pages(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

Memory::Memory(const Memory& other) : arena_(other.arena_), block_(other.block_) {
  if (arena_) ++arena_->blocks_[block_].shares;
}

Memory& Memory::operator=(const Memory& other) { return *this = Memory(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  Memory from(std::move(other));
  std::swap(arena_, from.arena_);
  std::swap(block_, from.block_);
  return *this;
}

Memory::~Memory() {
  if (arena_ && --arena_->blocks_[block_].shares == 0) arena_->release(block_);
}

bool Memory::shared() const { return arena_ && arena_->blocks_[block_].shares > 1; }

std::span<std::byte> Memory::bytes() const {
  if (!arena_) return {};
  const auto& block = arena_->blocks_[block_];
  return {arena_->base_ + block.offset, block.bytes};
}

Arena::Arena(Purpose purpose) : purpose_(purpose) {
  for (reserved_ = purpose == Purpose::memory ? most_reserved : most_counted; reserved_ >= least_reserved && !base_;
       reserved_ /= 2)
    base_ = static_cast<std::byte*>(map_pages(reserved_));
  if (!base_)
    throw Error(
        "arena: the system gives no address range for activations; is there a limit on virtual memory (ulimit -v)?");
  reserved_ *= 2;  // the loop halves once more after the successful attempt
}

Arena::~Arena() { munmap(base_, reserved_); }

Memory Arena::allocate(std::size_t bytes) {
  const auto size = aligned(bytes);
  auto block = free_blocks_ > 0 ? first_fit(size) : none;
  if (block == none)
    block = append(size);
  else
    split(block, size);
  blocks_[block].shares = 1;
  in_use_ += blocks_[block].bytes;
  return {this, block};
}

// First fit keeps allocations at low addresses, so that the touched range stays small.
std::uint32_t Arena::first_fit(std::size_t bytes) {
  for (auto at = first_; at != none; at = blocks_[at].after) {
    if (!blocks_[at].free || blocks_[at].bytes < bytes) continue;
    blocks_[at].free = false;
    --free_blocks_;
    return at;
  }
  return none;
}

std::uint32_t Arena::append(std::size_t bytes) {
  const auto offset = last_ == none ? 0 : blocks_[last_].offset + blocks_[last_].bytes;
  if (offset + bytes > reserved_)
    throw Error(text("arena: ", bytes, " bytes more than the ", reserved_, " that are reserved"));
  touch(offset + bytes);
  const auto block = fresh_index();
  blocks_[block] = {.offset = offset, .bytes = bytes, .before = last_};
  (last_ == none ? first_ : blocks_[last_].after) = block;
  last_ = block;
  return block;
}

std::uint32_t Arena::fresh_index() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    unused_.reserve(blocks_.capacity());  // so that release() never allocates
    return static_cast<std::uint32_t>(blocks_.size() - 1);
  }
  const auto index = unused_.back();
  unused_.pop_back();
  return index;
}

void Arena::split(std::uint32_t block, std::size_t bytes) {
  if (blocks_[block].bytes == bytes) return;
  const auto rest = fresh_index();
  auto& front = blocks_[block];
  blocks_[rest] = {.offset = front.offset + bytes,
                   .bytes = front.bytes - bytes,
                   .before = block,
                   .after = front.after,
                   .free = true};
  (front.after == none ? last_ : blocks_[front.after].before) = rest;
  front.after = rest;
  front.bytes = bytes;
  ++free_blocks_;
}

void Arena::release(std::uint32_t block) {
  in_use_ -= blocks_[block].bytes;
  blocks_[block].free = true;
  ++free_blocks_;
  absorb_next(block);
  if (blocks_[block].before != none && blocks_[blocks_[block].before].free) {
    block = blocks_[block].before;
    absorb_next(block);
  }
  if (block != last_) return;
  last_ = blocks_[block].before;  // free memory after the last block is not a block
  (last_ == none ? first_ : blocks_[last_].after) = none;
  --free_blocks_;
  unused_.push_back(block);
}

void Arena::absorb_next(std::uint32_t block) {
  const auto next = blocks_[block].after;
  if (next == none || !blocks_[next].free) return;
  blocks_[block].bytes += blocks_[next].bytes;
  blocks_[block].after = blocks_[next].after;
  (blocks_[next].after == none ? last_ : blocks_[blocks_[next].after].before) = block;
  --free_blocks_;
  unused_.push_back(next);
}

void Arena::touch(std::size_t end) {
  high_water_ = std::max(high_water_, end);
  const auto needed = (end + slab_bytes - 1) / slab_bytes;
  if (needed <= slabs_) return;
  if (purpose_ == Purpose::memory)
    madvise(base_ + slabs_ * slab_bytes, (needed - slabs_) * slab_bytes,
            MADV_HUGEPAGE);  // a hint; failure is not an error
  slabs_ = needed;
}

Storage::Storage(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  data_ = static_cast<std::byte*>(map_pages(bytes));
  if (!data_) throw Error(text("memory: the system refuses ", bytes, " bytes for weights and optimizer state"));
  madvise(data_, bytes, MADV_HUGEPAGE);
}

Storage::Storage(Storage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Storage& Storage::operator=(Storage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Storage::~Storage() {
  if (data_) munmap(data_, size_);
}

}  // namespace tessera
