#include "framework/model/reference_scores.h"

#include <bit>
#include <utility>

#include "framework/model/preference_objective.h"

namespace tessera::model {
namespace {

/// A permutation of 64-bit numbers in which each bit changes half of the others (the finalizer of MurmurHash3).
std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDULL;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33);
}

std::uint64_t row_hash(const TokenBatch& batch, std::int64_t row) {
  const auto one = samples_of<TokenBatch>(batch, row, 1);
  auto hash = scrambled(static_cast<std::uint64_t>(batch.seq_length));
  const auto add = [&](std::uint32_t a, std::uint32_t b) {
    hash = scrambled(hash ^ (static_cast<std::uint64_t>(a) << 32U | b));
  };
  for (std::size_t t = 0; t < one.tokens.size(); ++t) {
    add(static_cast<std::uint32_t>(one.tokens[t]), static_cast<std::uint32_t>(one.labels[t]));
    add(std::bit_cast<std::uint32_t>(one.loss_mask[t]),
        one.document_start.empty() ? 0 : static_cast<std::uint32_t>(one.document_start[t]));
  }
  return hash;
}

}  // namespace

autograd::LossSum ReferenceScores::judge(const Losses& losses, std::span<float>, std::span<autograd::LossSum>) const {
  for (std::int64_t row = 0; row < losses.batch.samples; ++row) {
    const Entry entry{row_hash(losses.batch, row), completion_score(losses, row).policy};
    if (sums_.try_emplace(entry.row, entry.sum).second) added_.push_back(entry);
  }
  return {};
}

double ReferenceScores::of(const TokenBatch& batch, std::int64_t row) const {
  const auto found = sums_.find(row_hash(batch, row));
  must(found != sums_.end(), "the reference model has seen the rows that are judged");
  return found->second;
}

bool ReferenceScores::has(const TokenBatch& batch) const {
  for (std::int64_t row = 0; row < batch.samples; ++row)
    if (sums_.count(row_hash(batch, row)) == 0) return false;
  return true;
}

std::vector<ReferenceScores::Entry> ReferenceScores::take_added() const { return std::exchange(added_, {}); }

}  // namespace tessera::model
