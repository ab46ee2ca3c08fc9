#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "framework/comm/group.h"

namespace tessera {

/// Sums and gathers by messages of arrays that every member has: each member owns a shard of the array, and pieces of
/// bounded size travel, several in flight at a time, while the caller does other work. All members add the same jobs in
/// the same order. Internal to this component.
class MessagePieces {
 public:
  /// One sum or gather.
  struct Job {
    std::span<std::byte> values;  ///< of this rank; must not be changed by others until the job is done
    DType type = DType::float32;
    Combine how = Combine::sum;
    bool sum = true;         ///< false: the shards are only gathered
    bool everywhere = true;  ///< all members receive the result; false: each only that of its own shard
    std::size_t grain = 64;  ///< bytes; shards have their boundaries at multiples of this
  };

  /// Maximum bytes of one message, if the best size has not been measured.
  static constexpr std::size_t usual_piece = 4 << 20;

  /// Uses the tags `tag` and `tag` + 1 of the group's communicator.
  MessagePieces(const Communicator::State& group, int tag, std::size_t piece_bytes = usual_piece);
  ~MessagePieces();

  /// Queues a job; does not block.
  void add(const Job& job);
  /// Does what can be done without blocking. Returns true if all jobs are done.
  bool advance();
  /// The members that the oldest piece is waiting for.
  Missing missing() const;

 private:
  struct Piece;
  bool start();
  bool advance(Piece& piece);
  void combine(Piece& piece);
  void fetch_sums(Piece& piece);

  const Communicator::State& group_;
  int tag_;
  std::size_t piece_bytes_;
  std::deque<Job> jobs_;                                   // of which not all pieces have begun
  std::size_t next_piece_ = 0;                             // of the first job
  std::uint64_t begun_ = 0, combined_ = 0, fetching_ = 0;  // pieces that have come to each stage
  std::deque<std::unique_ptr<Piece>> under_way_;
  std::vector<std::unique_ptr<Piece>> spare_;
  std::vector<const std::byte*> sources_;
};

}  // namespace tessera
