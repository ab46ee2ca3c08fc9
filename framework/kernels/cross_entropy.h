#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Cross-entropy loss of each row, -log softmax(logits)[label], and its gradient in place.
///
///   logits   [rows, vocabulary]   overwritten with weight[r] * (softmax - onehot) if `gradient`, else unchanged
///   labels   [rows]               each below `vocabulary`; a negative label is ignored: loss 0, gradient row 0
///   weight   [rows]               gradient of the objective with respect to loss[r]; empty: all ones
///   loss     [rows]               written
///
/// The exponentials of a row are summed in fp32 lanes that are folded into a double every 64 vectors: the loss keeps
/// fp32 accuracy for logits of +-90 and 200,000 columns. The order of the sums does not depend on the number of
/// threads. Throws ShapeError if a size differs from these shapes or a label is too large.
void cross_entropy(Threads& threads, std::int64_t vocabulary, std::span<float> logits,
                   std::span<const std::int32_t> labels, std::span<const float> weight, std::span<float> loss,
                   bool gradient);

/// Cross-entropy of logits that are sharded over ranks by column (vocabulary parallelism). Each rank calls the three
/// functions below; between them the ranks all-reduce: the maximum after cross_entropy_largest, the sum after
/// cross_entropy_sums. Source: Megatron-LM's vocab_parallel_cross_entropy, arXiv:1909.08053.
struct CrossEntropyPart {
  std::int64_t columns;       ///< number of vocabulary columns on this rank
  std::int64_t first_column;  ///< index in the vocabulary of column 0 of this rank
  std::int64_t vocabulary;    ///< number of columns on all ranks together
};
/// Step 1: most[r] = maximum of row r on this rank. logits [rows, columns], most [rows]. Throws ShapeError if the sizes
/// do not fit.
void cross_entropy_largest(Threads& threads, const CrossEntropyPart& part, std::span<const float> logits,
                           std::span<float> most);
/// Step 2, after `most` was all-reduced: replaces the logits by e^(logit - most[r]).
///
///   logits   [rows, columns]
///   labels   [rows]            indices in the whole vocabulary; negative: ignored
///   most     [rows]            maximum of each row over all ranks
///   sums     [rows, 2]         written: sum of the row's exponentials on this rank; and logits[label] - most[r], or
///                              0 if the label's column is on another rank
///
/// `sums` is in double, because the sums of all ranks are added. Throws ShapeError if a size differs from these shapes
/// or a label is too large.
void cross_entropy_sums(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                        std::span<const std::int32_t> labels, std::span<const float> most, std::span<double> sums);
/// Step 3, after `sums` was all-reduced: writes loss[r], the same on every rank. If `gradient`, replaces the
/// exponentials of the row by this rank's columns of weight[r] * (softmax - onehot). labels, weight and loss are
/// [rows], as for cross_entropy.
void cross_entropy_finish(Threads& threads, const CrossEntropyPart& part, std::span<float> logits,
                          std::span<const std::int32_t> labels, std::span<const double> sums,
                          std::span<const float> weight, std::span<float> loss, bool gradient);

}  // namespace tessera::kernels
