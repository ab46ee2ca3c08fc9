#pragma once

#include "framework/nn/module.h"
#include "framework/parallel/tensor_parallel.h"

namespace tessera::parallel {

/// An embedding table sharded by rows: rank r of n has rows [r * rows / n, (r + 1) * rows / n). Source: Megatron-LM
/// core, VocabParallelEmbedding.
class VocabParallelEmbedding final : public nn::Module {
 public:
  /// Declares the parameter "<name>.weight" [rows, width]. Throws ShapeError if tensor.ranks does not divide `rows`.
  VocabParallelEmbedding(const std::string& name, std::int64_t rows, std::int64_t width, const nn::Init& init,
                         const nn::TensorRank& tensor);

  /// Returns the embeddings of the pass's `tokens` [B * T]: [B, T, width] in the tape's compute type on every rank;
  /// with sequence parallelism [B, T / n, width]. All ranks pass the same tokens, which must stay unchanged until the
  /// backward pass is done. Throws ShapeError for a token outside the table.
  autograd::Var forward(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass) const;
  autograd::Leaf& weight() const { return weight_.leaf; }

 private:
  std::int64_t rows_;
  nn::TensorRank tensor_;
  nn::Parameter& weight_;
};

/// Cross-entropy of logits that are sharded by vocabulary. The logits are never gathered: the ranks exchange three
/// numbers per token (four with label smoothing).
///
///   logits   [.., V / n]   columns [r * V / n, (r + 1) * V / n) on rank r, in any type
///   labels   [rows]        in [0, V), the same on all ranks; a negative label is ignored: loss 0, gradient 0
///   result   [..]          -log softmax(logits)[label], fp32, the same on every rank
///
/// With `label_smoothing` e in [0, 1) the loss is (1 - s) * result + s * (mean of -log softmax over all V columns),
/// where s = e V / (V - 1). (Megatron-LM takes the mean over each rank's own columns, so its loss then depends on n.)
///
/// The backward pass communicates nothing: each rank has the gradient of its own columns. Throws ShapeError unless
/// there is one label per row, ConfigError for a label_smoothing out of range. Models use vocabulary_loss instead,
/// which never holds all rows of logits at once. Source: Megatron-LM core, vocab_parallel_cross_entropy.
autograd::Var vocab_parallel_cross_entropy(const autograd::Var& logits, std::span<const std::int32_t> labels,
                                           const comm::Communicator& group, double label_smoothing = 0);

}  // namespace tessera::parallel
