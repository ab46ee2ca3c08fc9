#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "framework/comm/group.h"

namespace tessera {

/// Sums and gathers of arrays that every member has, by messages: each member owns a share of the array, and what
/// belongs to it travels in pieces, some of them under way at once while the caller does other work. Jobs come in the
/// same order on all members. For this room only.
class MessagePieces {
 public:
  struct Job {
    std::span<std::byte> values;  ///< of this member; stays as it is until the job is done
    DType type = DType::float32;
    Combine how = Combine::sum;
    bool sum = true;         ///< else the shares are only gathered
    bool everywhere = true;  ///< all members receive the sums; else each those of its own share
    std::size_t grain = 64;  ///< shares are cut at multiples of so many bytes
  };

  /// What travels in one message at most, where nobody has measured what is best.
  static constexpr std::size_t usual_piece = 4 << 20;

  /// Uses the tags `tag` and `tag` + 1 of the group.
  MessagePieces(const Communicator::State& group, int tag, std::size_t piece_bytes = usual_piece);
  ~MessagePieces();

  void add(const Job& job);
  /// Do what can be done without waiting for anybody. True when all jobs are done.
  bool advance();
  /// The members that the oldest piece waits for.
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
  std::deque<Job> jobs_;        // not all pieces of which have begun
  std::size_t next_piece_ = 0;  // of the first job
  std::uint64_t begun_ = 0, combined_ = 0, fetching_ = 0;
  std::deque<std::unique_ptr<Piece>> under_way_;
  std::vector<std::unique_ptr<Piece>> spare_;
  std::vector<const std::byte*> sources_;
};

}  // namespace tessera
