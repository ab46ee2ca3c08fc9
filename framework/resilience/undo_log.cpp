#include "framework/resilience/undo_log.h"

#include <cstring>

namespace tessera::resilience {
namespace {

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::size_t UndoLog::bytes(const Extents& e) {
  return sizeof(Header) + most_writers * sizeof(Writer) + whole_lines(e.pieces * sizeof(std::int64_t)) +
         (1 + e.tensors) * e.largest_whole * sizeof(float);
}

UndoLog::UndoLog(std::span<std::byte> memory, const Extents& extents) : extents_(extents) {
  must(memory.size() >= bytes(extents), "the section of an undo log is as long as it asks for");
  must(extents.tensors <= optim::most_slots, "an optimizer has at most most_slots tensors of state");
  auto* at = memory.data();
  header_ = reinterpret_cast<Header*>(at);
  at += sizeof(Header);
  writers_ = {reinterpret_cast<Writer*>(at), most_writers};
  at += most_writers * sizeof(Writer);
  stamps_ = {reinterpret_cast<std::atomic<std::int64_t>*>(at), extents.pieces};
  at += whole_lines(extents.pieces * sizeof(std::int64_t));
  whole_ = {reinterpret_cast<float*>(at), (1 + extents.tensors) * extents.largest_whole};
}

void UndoLog::begin() {
  // The step is stored last: until then the log belongs to the step before, whose copies are no longer needed.
  for (auto& writer : writers_) {
    writer.copied.store(0, std::memory_order_relaxed);
    writer.done.store(0, std::memory_order_relaxed);
  }
  header_->whole.store(0, std::memory_order_relaxed);
  header_->step.store(step() + 1, std::memory_order_release);
}

void UndoLog::copy(Writer& to, const optim::Block& from) const {
  constexpr auto bytes = optim::block_elements * sizeof(float);
  std::memcpy(to.values[0], from.master.data(), bytes);
  for (std::size_t k = 0; k < extents_.tensors; ++k) std::memcpy(to.values[1 + k], from.slots[k].data(), bytes);
}

void UndoLog::undo(const Writer& from, const optim::Block& to) {
  constexpr auto bytes = optim::block_elements * sizeof(float);
  std::memcpy(to.master.data(), from.values[0], bytes);
  for (std::size_t k = 0; k < extents_.tensors; ++k) std::memcpy(to.slots[k].data(), from.values[1 + k], bytes);
  ++undone_;
}

std::size_t UndoLog::resume(const Writer& writer, std::size_t piece, const optim::Block& block) {
  const auto copied = writer.copied.load(std::memory_order_acquire), done = writer.done.load(std::memory_order_acquire);
  if (copied == 0 || piece_of(copied) != piece) return 0;
  if (done > copied && piece_of(done) == piece) return block_of(done);  // it was interrupted between two blocks
  // Part of that block may have been updated. From its copy the update can be repeated: it is a pure function.
  undo(writer, block.part(block_of(copied) * optim::block_elements, optim::block_elements));
  return block_of(copied);
}

void UndoLog::save_whole(std::size_t piece, const optim::Block& block) {
  const auto count = block.master.size();
  must(count <= extents_.largest_whole, "a whole matrix is no larger than the log was told");
  // 0 while the copy is incomplete: then the matrix has not changed yet, and there is nothing to undo.
  header_->whole.store(0, std::memory_order_release);
  std::memcpy(whole_.data(), block.master.data(), count * sizeof(float));
  for (std::size_t k = 0; k < extents_.tensors; ++k)
    std::memcpy(whole_.data() + (1 + k) * count, block.slots[k].data(), count * sizeof(float));
  header_->whole.store(piece + 1, std::memory_order_release);
}

bool UndoLog::undo_whole(std::size_t piece, const optim::Block& block) {
  if (header_->whole.load(std::memory_order_acquire) != piece + 1) return false;
  const auto count = block.master.size();
  std::memcpy(block.master.data(), whole_.data(), count * sizeof(float));
  for (std::size_t k = 0; k < extents_.tensors; ++k)
    std::memcpy(block.slots[k].data(), whole_.data() + (1 + k) * count, count * sizeof(float));
  ++undone_;
  return true;
}

}  // namespace tessera::resilience
