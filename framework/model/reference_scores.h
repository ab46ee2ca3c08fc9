#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "framework/model/objective.h"

namespace tessera::model {

/// The log-probabilities of completions in the reference model. As the objective of a pass of that model, which has no
/// gradients, it remembers the sum of each row of the micro-batches: -sum of loss mask x token loss. Rows are told
/// apart by a hash of their content and padded length, so an entry does not depend on the order of samples, and a row
/// of the same content has the same value to the bit. Used by one thread.
class ReferenceScores final : public Objective {
 public:
  struct Entry {
    std::uint64_t row = 0;  ///< hash of the content
    double sum = 0;
  };
  autograd::LossSum judge(const Losses& losses, std::span<float> seeds,
                          std::span<autograd::LossSum> metrics) const override;

  /// The sum of row `row`. Throws BugError if no pass had it.
  double of(const TokenBatch& batch, std::int64_t row) const;
  /// Whether all rows of `batch` are known.
  bool has(const TokenBatch& batch) const;
  void add(const Entry& entry) const { sums_.try_emplace(entry.row, entry.sum); }
  /// The entries that passes have added since the last call.
  std::vector<Entry> take_added() const;
  void clear() const { sums_.clear(); }

 private:
  mutable std::unordered_map<std::uint64_t, double> sums_;
  mutable std::vector<Entry> added_;
};

}  // namespace tessera::model
