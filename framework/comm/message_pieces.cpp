#include "framework/comm/message_pieces.h"

#include <algorithm>

#include "framework/kernels/ordered_sum.h"

namespace tessera {
namespace {
// Two pieces in flight: one is combined while the next travels. More would only take memory.
constexpr std::size_t most_under_way = 2;
}  // namespace

/// One piece of a job: the same range of the shards of all members. `in` and `out` are the contributions, `sums` the
/// results.
struct MessagePieces::Piece {
  Piece(const Communicator::State& group, std::size_t longest)
      : bytes(longest), in(group.messages()), out(group.messages()), sums(group.messages()) {}

  std::size_t bytes;  // maximum of each shard
  Job job;
  std::size_t number = 0, place = 0;  // in its job; in the order of all pieces
  bool combined = false, fetching = false;
  std::unique_ptr<std::byte[]> arrived;  // the others' contributions to the own shard, in the order of ranks
  std::size_t room = 0;                  // bytes of `arrived`
  Messages in, out, sums;

  /// This piece's part of the shard of `member`.
  std::span<std::byte> part(int member, const Communicator::State& group) const {
    const Cut share = cut(job.values.size(), member, group.size(), job.grain);
    const std::size_t first = std::min(share.size(), number * bytes);
    return job.values.subspan(share.first + first, std::min(bytes, share.size() - first));
  }
};

MessagePieces::MessagePieces(const Communicator::State& group, int tag, std::size_t piece_bytes)
    : group_(group), tag_(tag), piece_bytes_(piece_bytes), sources_(static_cast<std::size_t>(group.size())) {}
MessagePieces::~MessagePieces() = default;

void MessagePieces::add(const Job& job) {
  if (!job.values.empty()) jobs_.push_back(job);
}

bool MessagePieces::start() {
  if (jobs_.empty() || under_way_.size() == most_under_way) return false;
  if (spare_.empty()) spare_.push_back(std::make_unique<Piece>(group_, piece_bytes_));
  // Pieces are reused with their buffers, so that a sum in every step allocates nothing.
  std::unique_ptr<Piece> piece = std::move(spare_.back());
  spare_.pop_back();
  piece->job = jobs_.front();
  piece->number = next_piece_++;
  piece->place = begun_++;
  piece->combined = piece->fetching = false;
  const auto own = piece->part(group_.rank, group_);
  const bool sum = piece->job.sum;
  if (sum && piece->room < own.size() * group_.others().size()) {
    piece->room = own.size() * group_.others().size();
    piece->arrived = std::make_unique_for_overwrite<std::byte[]>(piece->room);
  }
  std::byte* place = piece->arrived.get();
  for (int member = 0; member < group_.size(); ++member) {
    if (member == group_.rank) continue;
    const auto theirs = sum ? std::span(place, own.size()) : piece->part(member, group_);
    if (sum) place += own.size();
    if (!theirs.empty()) piece->in.receive(theirs, member, tag_);
  }
  for (const int other : group_.others()) {
    const auto theirs = sum ? piece->part(other, group_) : own;
    if (!theirs.empty()) piece->out.send(theirs, other, tag_);
  }
  std::size_t longest = 0;
  for (int r = 0; r < group_.size(); ++r)
    longest = std::max(longest, cut(piece->job.values.size(), r, group_.size(), piece->job.grain).size());
  if (next_piece_ * piece_bytes_ >= longest) {
    jobs_.pop_front();
    next_piece_ = 0;
  }
  under_way_.push_back(std::move(piece));
  return true;
}

// The own contribution takes its place in the order of ranks, so the sum is the same as with shared memory.
void MessagePieces::combine(Piece& piece) {
  const auto own = piece.part(group_.rank, group_);
  const std::byte* arrived = piece.arrived.get();
  for (int r = 0; r < group_.size(); ++r) {
    sources_[static_cast<std::size_t>(r)] = r == group_.rank ? own.data() : arrived;
    if (r != group_.rank) arrived += own.size();
  }
  std::byte* const out = own.data();
  const std::size_t count = own.size() / size_of(piece.job.type);
  if (piece.job.how == Combine::sum)
    ordered_sum(sources_, std::span(&out, 1), {}, count, piece.job.type);
  else
    greatest(sources_, std::span(&out, 1), count);
  if (!piece.job.everywhere || own.empty()) return;
  for (const int other : group_.others()) piece.sums.send(own, other, tag_ + 1);
}

void MessagePieces::fetch_sums(Piece& piece) {
  if (!piece.job.everywhere) return;
  for (const int other : group_.others())
    if (const auto theirs = piece.part(other, group_); !theirs.empty()) piece.sums.receive(theirs, other, tag_ + 1);
}

// MPI matches messages of one tag in the order in which they were posted, so the sums of pieces are sent, and their
// receives posted, in the order of pieces.
bool MessagePieces::advance(Piece& piece) {
  if (!piece.combined && combined_ == piece.place && piece.in.done()) {
    if (piece.job.sum) combine(piece);
    piece.combined = true;
    ++combined_;
  }
  // The sums are received where the contributions were sent from, so those must have left first.
  if (!piece.fetching && fetching_ == piece.place && piece.out.done()) {
    if (piece.job.sum) fetch_sums(piece);
    piece.fetching = true;
    ++fetching_;
  }
  return piece.combined && piece.fetching && piece.sums.done();
}

bool MessagePieces::advance() {
  while (true) {
    while (start()) {
    }
    for (const auto& piece : under_way_) advance(*piece);
    if (under_way_.empty() || !advance(*under_way_.front())) return under_way_.empty();
    spare_.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
}

Missing MessagePieces::missing() const {
  Missing all;
  if (under_way_.empty()) return all;
  for (const Messages* messages : {&under_way_.front()->in, &under_way_.front()->out, &under_way_.front()->sums})
    for (const int member : messages->missing()) all.push_back(member);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace tessera
