#pragma once

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/comm/communicator.h"
#include "framework/nn/layers.h"

namespace tessera {

/// How layers are sharded over a tensor-parallel group.
struct TensorParallel {
  Communicator group = {};
  bool sequence_parallel = false;  ///< between the pairs of layers each rank has a part of the tokens
};

/// y = x w^T + bias with w sharded by rows (output features).
///
///   x   [B, T, in] on every rank; with sequence parallelism [B, T / n, in], which is all-gathered first
///   y   [B, T, out / n]; with `gather_output` [B, T, out]
///
/// Source: Megatron-LM core, ColumnParallelLinear.
class ColumnParallelLinear final : public LinearLayer {
 public:
  /// `rows` are the rows of w and bias on this rank.
  ColumnParallelLinear(const std::string& name, const LinearSizes& sizes, TensorCut rows,
                       const TensorParallel& parallel, bool gather_output = false);
  /// The same with equal parts. Throws ShapeError if the group's size does not divide sizes.out.
  ColumnParallelLinear(const std::string& name, const LinearSizes& sizes, const TensorParallel& parallel,
                       bool gather_output = false);
  Var forward(const Var& x) const override;
  Var forward(const Var& x, Activation act) const override;
  Leaf& weight() const override { return weight_.leaf; }

 private:
  Var entered(const Var& x) const;
  TensorParallel parallel_;
  bool gather_output_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

/// y = x w^T + bias with w sharded by columns (input features): the ranks' products are summed, then the bias is added.
///
///   x   [B, T, in / n]; without `input_is_parallel` [B, T, in] on every rank
///   y   [B, T, out] on every rank; with sequence parallelism [B, T / n, out], reduce-scattered
///
/// Source: Megatron-LM core, RowParallelLinear.
class RowParallelLinear final : public LinearLayer {
 public:
  /// Throws ShapeError if the group's size does not divide sizes.in.
  RowParallelLinear(const std::string& name, const LinearSizes& sizes, const TensorParallel& parallel,
                    bool input_is_parallel = true);
  Var forward(const Var& x) const override;
  /// Throws BugError: an activation follows the first layer of a pair.
  Var forward(const Var& x, Activation act) const override;
  Leaf& weight() const override { return weight_.leaf; }

 private:
  TensorParallel parallel_;
  bool input_is_parallel_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

/// Makes the layers of a model sharded over a tensor-parallel group; for a group of one rank, whole layers.
class TensorParallelLayers final : public LayerMaker {
 public:
  explicit TensorParallelLayers(TensorParallel parallel = {}) : parallel_(std::move(parallel)) {}
  int rank() const override { return parallel_.group.rank(); }
  int ranks() const override { return parallel_.group.size(); }
  bool cuts_sequence() const override { return parallel_.sequence_parallel && ranks() > 1; }
  std::unique_ptr<LinearLayer> outputs_cut(const std::string& name, const LinearSizes& sizes,
                                           TensorCut rows) const override;
  std::unique_ptr<LinearLayer> inputs_cut(const std::string& name, const LinearSizes& sizes) const override;

  const TensorParallel& parallel() const { return parallel_; }

 private:
  TensorParallel parallel_;
};

/// Token embedding from a table that is sharded by rows.
///
///   batch    {B, T}
///   tokens   [B * T]   the same on all ranks; must stay unchanged until the backward pass is done
///   words    [rows of this rank, C], beginning with row `first_row` of `vocabulary`
///   result   [B, T, C] in `type` on every rank; with sequence parallelism [B, T / n, C]
///
/// Each rank gives zeros for tokens of other ranks' rows, and the results are summed. Throws ShapeError for a token
/// outside [0, vocabulary). Source: Megatron-LM core, VocabParallelEmbedding.
Var vocab_parallel_embedding(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& words,
                             std::int64_t first_row, std::int64_t vocabulary, const TensorParallel& parallel,
                             DType type);

/// y = x + table[positions], in the memory of x if possible. The table is replicated; positions [B * T] are those of
/// this rank's tokens.
Var plus_positions(Var x, std::span<const std::int32_t> positions, Leaf& table);

/// The tensor-parallel group as the ranks that share an output layer; rank r has rows [r * V / n, (r + 1) * V / n).
/// Source: Megatron-LM core, vocab_parallel_cross_entropy.
class VocabParallelHead final : public VocabularySharers {
 public:
  /// `vocabulary` rows on all ranks together, a multiple of the group's size.
  VocabParallelHead(Communicator group, std::int64_t vocabulary) : group_(std::move(group)), vocabulary_(vocabulary) {}
  std::int64_t first_row() const override { return vocabulary_ / group_.size() * group_.rank(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void take_largest(std::span<float> values) const override { group_.all_reduce_max(values, "largest logits"); }
  void add_up(std::span<double> values) const override { group_.all_reduce(values, "sums of the cross-entropy"); }

 private:
  Communicator group_;
  std::int64_t vocabulary_;
};

}  // namespace tessera
