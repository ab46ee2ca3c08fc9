#pragma once

#include <functional>
#include <span>
#include <vector>

#include "framework/autograd/ops/low_rank.h"

namespace tessera::parallel {
struct ProcessGroups;
}

namespace tessera::nn {

/// Adds up numbers over the tensor-parallel ranks of a layer, in place. Collective.
using SumOverRanks = std::function<void(const parallel::ProcessGroups* groups, std::span<double> numbers)>;

/// Whether the norms of W [out, in] are those of its rows, or W is a table [in, out], as of an embedding, and they are
/// those of its columns.
enum class NormsOf { rows, columns };

/// The norms of the rows of W + s B A in a layer with adapters, without W + s B A; of a table, whose adapter is
/// (B A)^T, those of its columns. Remembers the squares of this rank's
/// columns, those of a frozen W and those of the sum, as long as W, A and B are the same: then an accumulated
/// micro-batch, a layer that is computed again, or a generated token does not compute them again.
class RowNorms {
 public:
  /// `w`: the weight, or this rank's rows or columns of it; `add_up`: null if the rank has all that is summed. Both
  /// must outlive this object.
  RowNorms(const autograd::Leaf& w, SumOverRanks add_up, NormsOf of = NormsOf::rows)
      : w_(w), add_up_(std::move(add_up)), of_(of) {}

  /// The norms of this rank's rows, as floats. Collective if `add_up` is. The same memory is taken whether they are
  /// computed or remembered.
  Memory norms(autograd::Tape& tape, std::span<const autograd::LowRankFactors> factors,
               const parallel::ProcessGroups* groups) const;

 private:
  /// What tells whether a weight or a factor has changed.
  struct Content {
    const void* at = nullptr;
    std::vector<std::uint64_t> sums;
    bool operator==(const Content&) const = default;
  };
  Content content_of_weight() const;
  void weight_squares(autograd::Tape& tape, std::span<double> squares, bool computes) const;
  void own_squares(autograd::Tape& tape, std::span<const autograd::LowRankFactors> factors,
                   std::span<double> squares) const;

  const autograd::Leaf& w_;
  SumOverRanks add_up_;
  NormsOf of_;
  // Results that follow from the arguments: one thread records the passes of a model.
  mutable Content weight_, factors_;
  mutable std::vector<double> of_weight_, of_sum_;
};

}  // namespace tessera::nn
