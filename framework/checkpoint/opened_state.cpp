#include "framework/checkpoint/opened_state.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tessera::checkpoint {
namespace {

constexpr auto block_bytes = OpenedState::block_bytes;

std::size_t blocks_of(std::size_t bytes) { return (bytes + block_bytes - 1) / block_bytes; }

/// Copies memory that another thread may change meanwhile; the caller finds out, and does not use the result then. Such
/// a read is no data race only because of that, so ThreadSanitizer is not to see it: the loads are single instructions,
/// never a call of memcpy, which it would intercept.
__attribute__((no_sanitize("thread"))) void copy_unguarded(const std::byte* from, std::byte* to, std::size_t bytes) {
  using Word = std::uint64_t;
  std::size_t at = 0;
  const auto head =
      std::min(bytes, (sizeof(Word) - reinterpret_cast<std::uintptr_t>(from) % sizeof(Word)) % sizeof(Word));
  for (; at < head; ++at) to[at] = *static_cast<const volatile std::byte*>(from + at);
  for (; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
    const Word word = *reinterpret_cast<const volatile Word*>(from + at);
    std::memcpy(to + at, &word, sizeof word);
  }
  for (; at < bytes; ++at) to[at] = *static_cast<const volatile std::byte*>(from + at);
}

}  // namespace

Storage CopyMemory::take(std::size_t bytes) {
  Storage kept;
  {
    const std::lock_guard lock(mutex_);
    std::swap(kept, kept_);
  }
  if (kept.bytes().size() >= bytes) return kept;
  kept = Storage();  // both at once would be twice the memory
  return Storage(bytes);
}

void CopyMemory::give_back(Storage memory) noexcept {
  const std::lock_guard lock(mutex_);
  if (memory.bytes().size() > kept_.bytes().size()) kept_ = std::move(memory);
}

OpenedState::OpenedState(std::vector<TensorRange> ranges, Blobs blobs, Reading reading,
                         std::shared_ptr<CopyMemory> copies)
    : StateSnapshot(std::move(ranges), std::move(blobs)),
      reading_(reading),
      copies_(std::move(copies)),
      read_(ranges_.size()) {
  std::size_t blocks = 0, copy = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto memory = std::as_const(ranges_[i].tensor).raw();
    places_.push_back({memory.data(), memory.size(), blocks, copy});
    blocks += blocks_of(memory.size());
    copy += memory.size();
    if (!memory.empty()) by_address_.push_back(i);
  }
  std::sort(by_address_.begin(), by_address_.end(),
            [this](std::size_t a, std::size_t b) { return places_[a].memory < places_[b].memory; });
  for (std::size_t i = 1; i < by_address_.size(); ++i) {
    const auto& before = places_[by_address_[i - 1]];
    must(before.memory + before.bytes <= places_[by_address_[i]].memory, "no element is in two ranges of a snapshot");
  }
  blocks_ = std::make_unique<std::atomic<Block>[]>(blocks);
  copy_ = copies_ ? copies_->take(copy) : Storage(copy);
}

OpenedState::~OpenedState() {
  if (copies_) copies_->give_back(std::move(copy_));
}

std::span<const std::byte> OpenedState::bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const {
  must(first <= places_.at(index).bytes && buffer.size() <= places_[index].bytes - first,
       "what is read of a snapshot is in the range");
  if (reading_ == Reading::once) must(read_[index] == first, "a snapshot is read once, each range from its beginning");
  for (std::size_t done = 0; done < buffer.size();) {
    const auto to_end_of_block = block_bytes - (first + done) % block_bytes;
    const auto part = buffer.subspan(done, std::min(buffer.size() - done, to_end_of_block));
    read(index, first + done, part);
    done += part.size();
  }
  read_[index] = first + buffer.size();
  return buffer;
}

/// Bytes of one block. Whoever changes the block first marks it, so a block that is not marked after it was read had
/// its old elements all that time.
void OpenedState::read(std::size_t index, std::size_t first, std::span<std::byte> into) const {
  const auto& place = places_[index];
  auto& block = blocks_[place.first_block + first / block_bytes];
  auto state = block.load(std::memory_order_acquire);
  must(state != Block::read, "a block of a snapshot is read once");
  if (state == Block::live) {
    copy_unguarded(place.memory + first, into.data(), into.size());
    std::atomic_thread_fence(std::memory_order_acq_rel);
    const auto end = first + into.size();
    const bool last = reading_ == Reading::once && (end == place.bytes || end % block_bytes == 0);
    if (last ? block.compare_exchange_strong(state, Block::read, std::memory_order_acq_rel)
             : block.load(std::memory_order_acquire) == Block::live)
      return;
  }
  while (block.load(std::memory_order_acquire) == Block::copying) std::this_thread::yield();
  std::memcpy(into.data(), copy_.bytes().data() + place.copy + first, into.size());
}

void OpenedState::before_change(std::span<const std::byte> memory) {
  if (memory.empty() || ended_.load(std::memory_order_acquire)) return;
  const auto *const begin = memory.data(), *const end = begin + memory.size();
  auto at = std::partition_point(by_address_.begin(), by_address_.end(), [&](std::size_t index) {
    return places_[index].memory + places_[index].bytes <= begin;
  });
  for (; at != by_address_.end() && places_[*at].memory < end; ++at) {
    const auto& place = places_[*at];
    const auto first = static_cast<std::size_t>(std::max(begin, place.memory) - place.memory),
               last = static_cast<std::size_t>(std::min(end, place.memory + place.bytes) - place.memory) - 1;
    std::size_t copied = 0;
    for (auto block = first / block_bytes; block <= last / block_bytes; ++block)
      if (protect(place, block)) copied += std::min(block_bytes, place.bytes - block * block_bytes);
    copied_.fetch_add(copied, std::memory_order_relaxed);
  }
}

/// Returns whether this thread has copied the block.
bool OpenedState::protect(const Place& place, std::size_t number) {
  auto& block = blocks_[place.first_block + number];
  auto state = block.load(std::memory_order_acquire);
  if (state == Block::live && block.compare_exchange_strong(state, Block::copying, std::memory_order_acq_rel)) {
    const auto first = number * block_bytes;
    std::memcpy(copy_.bytes().data() + place.copy + first, place.memory + first,
                std::min(block_bytes, place.bytes - first));
    block.store(Block::copied, std::memory_order_release);
    // The changes that follow come after the mark, for a reader that has not seen it when it began to read.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return true;
  }
  while (block.load(std::memory_order_acquire) == Block::copying) std::this_thread::yield();
  return false;
}

}  // namespace tessera::checkpoint
