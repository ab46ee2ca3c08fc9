#pragma once

#include "framework/nn/module.h"
#include "framework/parallel/tensor_parallel.h"

namespace tessera {

/// A table of embeddings cut along its rows: process r of n has rows [r * rows / n, (r + 1) * rows / n).
/// Source: Megatron-LM core, VocabParallelEmbedding.
class VocabParallelEmbedding final : public Module {
 public:
  /// The table "<name>.weight" [rows, width]. Throws ShapeError when the rows do not divide by the processes.
  VocabParallelEmbedding(const std::string& name, std::int64_t rows, std::int64_t width, const Init& init,
                         TensorParallel parallel);

  /// y [B, T, width] for tokens [B * T] of `batch` [B, T], in the type the tape computes in: whole on every process,
  /// with sequence parallel [B, T / n, width]. All give the same tokens, which stay until the backward pass is done. A
  /// token that is no row of the whole table is a ShapeError.
  Var forward(Tape& tape, const Shape& batch, std::span<const std::int32_t> tokens) const;
  Leaf& weight() const { return weight_.leaf; }

 private:
  std::int64_t rows_;
  TensorParallel parallel_;
  Parameter& weight_;
};

/// Cross-entropy of logits that are cut along the vocabulary: no process sees the others' columns, three numbers for
/// each token (four when smoothed) are all that is exchanged.
///
///   logits   [.., V / n]   columns [r * V / n, (r + 1) * V / n) on process r, of any type
///   labels   [rows]        in [0, V), the same on all; a negative one is ignored: loss 0, gradient 0
///   returns  [..]          -log softmax(logits)[label], fp32, the same on every process
///
/// With `label_smoothing` e in [0, 1) the loss is (1 - s) * that + s * (mean of -log softmax over all V columns),
/// s = e V / (V - 1). (Megatron-LM's means are over each process's own columns, so its losses then depend on n.)
///
/// Its backward pass exchanges nothing: each process has the gradient of its own columns. Throws ShapeError when there
/// is not one label for each row of logits. A model takes vocabulary_loss instead, which never has all rows of logits
/// at once. Source: Megatron-LM core, vocab_parallel_cross_entropy.
Var vocab_parallel_cross_entropy(const Var& logits, std::span<const std::int32_t> labels, const Communicator& group,
                                 double label_smoothing = 0);

}  // namespace tessera
