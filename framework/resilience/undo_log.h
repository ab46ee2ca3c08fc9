#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "framework/optim/optimizer.h"

namespace tessera::resilience {

/// Lets a later process complete an optimizer step that was killed at any instruction, with bitwise the same result as
/// an undisturbed step: before a block of 64 elements (optim::block_elements) changes, its weights and optimizer state
/// are copied into the log. A step consists of pieces, which several threads update at the same time, and possibly of
/// whole matrices, which are updated one after another.
///
/// The log is in a section of the state file. To complete an interrupted step, first update the interrupted pieces,
/// each with the writer that has its copy (for_interrupted), and then all others.
class UndoLog {
 public:
  /// Maximum number of threads that update at a time.
  static constexpr int most_writers = 64;

  /// Sizes that determine the size of the log.
  struct Extents {
    std::size_t pieces = 0;         ///< pieces of a step, including whole matrices
    std::size_t tensors = 0;        ///< optimizer state tensors per weight tensor
    std::size_t largest_whole = 0;  ///< elements of the largest whole matrix; 0: there is none
  };
  /// Size of the section in bytes.
  static std::size_t bytes(const Extents& extents);
  /// Uses `memory`, which contains zeros or what an earlier process left. It must outlive this object. Throws BugError
  /// if it is too short.
  UndoLog(std::span<std::byte> memory, const Extents& extents);

  /// Starts a step: discards the copies of the previous step and marks all pieces as not complete. Call it before
  /// StepJournal::intend().
  void begin();

  /// Calls visit(piece, writer) for each piece that was started since begin() and is not complete, with the writer that
  /// has the copy of its last block.
  template <class Visit>
  void for_interrupted(const Visit& visit) const {
    for (std::size_t w = 0; w < writers_.size(); ++w) {
      const auto copied = writers_[w].copied.load(std::memory_order_acquire);
      if (copied != 0 && !complete(piece_of(copied))) visit(piece_of(copied), static_cast<int>(w));
    }
  }

  /// Updates `piece`, whose elements are `block`, 64 elements at a time, each after a copy. Does nothing if the piece
  /// is complete; continues it if this writer was updating it when it was interrupted. `writer` is in [0,
  /// most_writers); two threads must not use the same one at the same time. `update(rest, undo)` must update a range of
  /// the piece as optim::Optimizer::update_undoable does.
  template <class Update>
  void update(std::size_t piece, const optim::Block& block, int writer, const Update& update);
  /// Calls `change(interrupted)` once for the whole of a piece that is not complete, after a copy of it. If the piece
  /// was interrupted, its old content is restored first and `interrupted` is true. Only one piece at a time.
  template <class Change>
  void change_whole(std::size_t piece, optim::Block block, const Change& change);

  /// Number of blocks and whole matrices that were found half changed and were restored since this object was created.
  int undone() const { return undone_; }

 private:
  static constexpr std::size_t arrays = 1 + optim::most_slots;
  /// The log of one writer. `copied` and `done` name a piece and a block (see place()); the copy is valid while
  /// `copied` is not done.
  struct alignas(64) Writer {
    std::atomic<std::uint64_t> copied, done;
    alignas(64) float values[arrays][optim::block_elements];
  };
  struct alignas(64) Header {
    std::atomic<std::int64_t> step;    ///< number of calls of begin()
    std::atomic<std::uint64_t> whole;  ///< 1 + the whole piece whose copy is complete; 0: none
  };
  /// A block of a piece as one number, never 0; the numbers of the blocks of a piece are ascending.
  static std::uint64_t place(std::size_t piece, std::size_t block) {
    return (static_cast<std::uint64_t>(piece) + 1) << 24 | block;
  }
  static std::size_t piece_of(std::uint64_t place) { return (place >> 24) - 1; }
  static std::size_t block_of(std::uint64_t place) { return place & 0xffffff; }

  bool complete(std::size_t piece) const { return stamps_[piece].load(std::memory_order_acquire) == step(); }
  void set_complete(std::size_t piece) { stamps_[piece].store(step(), std::memory_order_release); }
  std::int64_t step() const { return header_->step.load(std::memory_order_relaxed); }
  /// Restores the block of a piece that `writer` had partly changed; returns the number of blocks that are complete.
  std::size_t resume(const Writer& writer, std::size_t piece, const optim::Block& block);
  void copy(Writer& to, const optim::Block& from) const;
  void undo(const Writer& from, const optim::Block& to);
  void save_whole(std::size_t piece, const optim::Block& block);
  bool undo_whole(std::size_t piece, const optim::Block& block);

  Extents extents_;
  Header* header_;
  std::span<Writer> writers_;
  std::span<std::atomic<std::int64_t>> stamps_;  ///< for each piece, the last step that completed it
  std::span<float> whole_;  ///< copy of a whole piece: its weights, then each optimizer state tensor
  std::atomic<int> undone_ = 0;
};

template <class Update>
void UndoLog::update(std::size_t piece, const optim::Block& block, int writer, const Update& update) {
  if (complete(piece)) return;
  auto& own = writers_[static_cast<std::size_t>(writer)];
  const auto blocks = resume(own, piece, block), first = blocks * optim::block_elements;
  update(block.part(first, block.master.size() - first),
         kernels::BlockUndo{own.copied, own.done, own.values[0], place(piece, blocks), nullptr});
  set_complete(piece);
}

template <class Change>
void UndoLog::change_whole(std::size_t piece, optim::Block block, const Change& change) {
  if (complete(piece)) return;
  const bool interrupted = undo_whole(piece, block);
  save_whole(piece, block);
  change(interrupted);
  set_complete(piece);
}

}  // namespace tessera::resilience
