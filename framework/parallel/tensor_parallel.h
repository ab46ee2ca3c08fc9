#pragma once

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/comm/communicator.h"
#include "framework/nn/layers.h"

namespace tessera {

/// How a layer that is cut over a group takes and gives its values.
struct TensorParallel {
  Communicator group = {};
  bool sequence_parallel = false;  ///< values between the pairs of layers are cut along the tokens
};

/// y = x w^T + bias with w cut along its rows: each process gives its part of y's last extent. x is whole on every
/// process, or cut along the tokens. Source: Megatron-LM core, ColumnParallelLinear.
class ColumnParallelLinear final : public LinearLayer {
 public:
  /// `rows` of w and bias are here. With `gather_output` every process gets all of y.
  ColumnParallelLinear(const std::string& name, const LinearSizes& sizes, TensorCut rows,
                       const TensorParallel& parallel, bool gather_output = false);
  /// The same with even parts.
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

/// y = x w^T + bias with w cut along its columns: the processes' parts of y are summed, then the bias is added. y is
/// whole on every process, or cut along the tokens. Source: Megatron-LM core, RowParallelLinear.
class RowParallelLinear final : public LinearLayer {
 public:
  /// `input_is_parallel`: x is this process's part of the last extent; else all have all of x.
  RowParallelLinear(const std::string& name, const LinearSizes& sizes, const TensorParallel& parallel,
                    bool input_is_parallel = true);
  Var forward(const Var& x) const override;
  Var forward(const Var& x, Activation act) const override;
  Leaf& weight() const override { return weight_.leaf; }

 private:
  TensorParallel parallel_;
  bool input_is_parallel_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

/// Layers cut over a tensor-parallel group. On one rank they are the plain ones.
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

/// y [B, T, C] = the rows `tokens` of a table cut along its rows, of which `words` are here, from row `first_row` on;
/// each process gives zeros for the others' rows, and the parts are summed; with sequence parallel y is [B, T / n, C].
/// `tokens` [B * T] stay until the backward pass is done. Source: Megatron-LM core, VocabParallelEmbedding.
Var vocab_parallel_embedding(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens, Leaf& words,
                             std::int64_t first_row, std::int64_t vocabulary, const TensorParallel& parallel,
                             DType type);

/// y = x + table[positions], the table whole on every process; positions [B * T] of the tokens that are here.
Var plus_positions(Var x, std::span<const std::int32_t> positions, Leaf& table);

/// The group as those who have the other rows of the head. Source: Megatron-LM core, vocab_parallel_cross_entropy.
class VocabParallelHead final : public VocabularySharers {
 public:
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
