#pragma once

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/nn/layers.h"
#include "framework/parallel/process_groups.h"

namespace tessera::parallel {

/// The group in which a layer of tensor-parallel rank `tensor` communicates. Throws BugError if the pass has no groups,
/// or if this rank has another position in its group: the pass then belongs to another model. Call it only if
/// tensor.ranks > 1.
const comm::Communicator& tensor_group(const nn::Pass& pass, const nn::TensorRank& tensor);

/// Adds up what the ranks of `tensor` compute from their parts of the rows or columns of a weight; null: one rank has
/// all. `layer`: for messages.
nn::SumOverRanks sum_of_ranks(const nn::TensorRank& tensor, const std::string& layer);

/// y = x w^T + bias with w sharded by rows (output features).
///
///   x   [B, T, in] on every rank; with sequence parallelism [B, T / n, in], which is all-gathered first
///   y   [B, T, out / n]; with `gather_output` [B, T, out]
///
/// Communicates in the tensor-parallel group of the pass. Source: Megatron-LM core, ColumnParallelLinear.
class ColumnParallelLinear final : public nn::ActivatedLinearLayer {
 public:
  /// `rows`: the rows of w and bias that this rank has.
  ColumnParallelLinear(const std::string& name, const nn::LinearSizes& sizes, nn::TensorCut rows,
                       const nn::TensorRank& tensor, bool gather_output = false);
  /// The same with an equal number of rows on all ranks. Throws ShapeError if tensor.ranks does not divide sizes.out.
  ColumnParallelLinear(const std::string& name, const nn::LinearSizes& sizes, const nn::TensorRank& tensor,
                       bool gather_output = false);
  autograd::Var forward(const autograd::Var& x, const nn::Pass& pass) const override;
  autograd::Var forward(const autograd::Var& x, kernels::Activation act, const nn::Pass& pass) const override;
  autograd::Leaf& weight() const override { return weight_.leaf; }
  const nn::Adapters* adapters() const override { return adapters_.get(); }

 private:
  autograd::Var entered(const autograd::Var& x, const nn::Pass& pass) const;
  autograd::Var product(const autograd::Var& x, const nn::Pass& pass) const;
  autograd::Var left(const autograd::Var& y, const nn::Pass& pass) const;
  autograd::Leaf* bias() const { return bias_ ? &bias_->leaf : nullptr; }
  nn::TensorRank tensor_;
  bool gather_output_;
  nn::Parameter& weight_;
  nn::Parameter* bias_ = nullptr;
  std::unique_ptr<nn::Adapters> adapters_;
};

/// y = x w^T + bias with w sharded by columns (input features): the ranks' products are summed, then the bias is added.
///
///   x   [B, T, in / n]; without `input_is_parallel` [B, T, in] on every rank
///   y   [B, T, out] on every rank; with sequence parallelism [B, T / n, out], reduce-scattered
///
/// Communicates in the tensor-parallel group of the pass. Source: Megatron-LM core, RowParallelLinear.
class RowParallelLinear final : public nn::LinearLayer {
 public:
  /// Throws ShapeError if tensor.ranks does not divide sizes.in.
  RowParallelLinear(const std::string& name, const nn::LinearSizes& sizes, const nn::TensorRank& tensor,
                    bool input_is_parallel = true);
  autograd::Var forward(const autograd::Var& x, const nn::Pass& pass) const override;
  autograd::Leaf& weight() const override { return weight_.leaf; }
  const nn::Adapters* adapters() const override { return adapters_.get(); }

 private:
  /// The product with this rank's columns, and what its adapters add to it.
  autograd::Var product(const autograd::Var& x, autograd::Leaf* bias, const nn::Pass& pass) const;
  nn::TensorRank tensor_;
  bool input_is_parallel_;
  nn::Parameter& weight_;
  nn::Parameter* bias_ = nullptr;
  std::unique_ptr<nn::Adapters> adapters_;
};

/// y = x w^T + bias with w sharded by rows (output features) and the outputs gathered.
///
///   x    [B, T, in] on every rank; with sequence parallelism [B, T / n, in], which is all-gathered first
///   own  [B, T, first]: the first outputs, for this rank's tokens; with sequence parallelism [B, T / n, first]
///   all  [B, T, out - first]: the other outputs of all tokens, on every rank; their gradients are summed
///
/// Communicates in the tensor-parallel group of the pass. Source: Megatron-LM core, MLASelfAttention and
/// MultiTokenPredictionLayer, which gather the output of a ColumnParallelLinear and split the sequence again.
class GatheredParallelLinear final : public nn::GatheredLinear {
 public:
  /// Throws ShapeError if tensor.ranks does not divide sizes.out.
  GatheredParallelLinear(const std::string& name, const nn::LinearSizes& sizes, const nn::TensorRank& tensor);
  Parts forward(const autograd::Var& x, std::int64_t first, const nn::Pass& pass) const override;

 private:
  nn::TensorRank tensor_;
  ColumnParallelLinear linear_;
};

/// Creates the layers of a model that is sharded over a tensor-parallel group; for a group of one rank, whole layers.
class TensorParallelLayers final : public nn::LayerMaker {
 public:
  using nn::LayerMaker::LayerMaker;
  std::unique_ptr<nn::ActivatedLinearLayer> column_parallel(const std::string& name, const nn::LinearSizes& sizes,
                                                            nn::TensorCut rows) const override;
  std::unique_ptr<nn::LinearLayer> row_parallel(const std::string& name, const nn::LinearSizes& sizes) const override;
  std::unique_ptr<nn::GatheredLinear> gathered(const std::string& name, const nn::LinearSizes& sizes) const override;
  nn::SumOverRanks sum_over_ranks(const std::string& name) const override;
};

/// Token embedding from a table that is sharded by rows.
///
///   tokens   [B * T]   the same on all ranks; must stay unchanged until the backward pass is done
///   words    [vocabulary / n, C]: this rank's rows of `vocabulary`
///   result   [B, T, C] in `type` on every rank; with sequence parallelism [B, T / n, C]
///
/// `pass` has the batch {B, T} and the group of `tensor`. Each rank contributes zeros for tokens of other ranks' rows,
/// and the contributions are summed. The token `padding` adds nothing to the gradient. Throws ShapeError for a token
/// outside [0, vocabulary). Source: Megatron-LM core, VocabParallelEmbedding.
autograd::Var vocab_parallel_embedding(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                       autograd::Leaf& words, std::int64_t vocabulary, const nn::TensorRank& tensor,
                                       const nn::Pass& pass, DType type, std::int64_t padding = -1);

/// y = x + table[positions], in the memory of x if possible. The table is replicated; positions [B * T] belong to this
/// rank's tokens.
autograd::Var plus_positions(autograd::Var x, std::span<const std::int32_t> positions, autograd::Leaf& table);

/// The tensor-parallel group as the ranks that share an output layer; rank r has the rows [r * V / n, (r + 1) * V / n).
/// Source: Megatron-LM core, vocab_parallel_cross_entropy.
class VocabParallelHead final : public autograd::VocabularySharers {
 public:
  /// `vocabulary`: number of rows on all ranks together, a multiple of the group's size. `group` must outlive this.
  VocabParallelHead(const comm::Communicator& group, std::int64_t vocabulary)
      : group_(group), vocabulary_(vocabulary) {}
  std::int64_t first_row() const override { return vocabulary_ / group_.size() * group_.rank(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void take_largest(std::span<float> values) const override { group_.all_reduce_max(values, "largest logits"); }
  void add_up(std::span<double> values) const override { group_.all_reduce(values, "sums of the cross-entropy"); }

 private:
  const comm::Communicator& group_;
  std::int64_t vocabulary_;
};

}  // namespace tessera::parallel
