#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The loss as sums over tokens, so that those of micro-batches and ranks can be added before dividing.
struct LossSum {
  double sum = 0;    ///< sum of loss * mask
  double count = 0;  ///< sum of mask
};

/// The ranks that hold the other rows of a vocabulary-parallel output layer: w has rows [first_row, first_row + rows)
/// of `vocabulary`. Each of them calls vocabulary_loss with the same h and labels; the logits are never gathered.
class VocabularySharers {
 public:
  virtual ~VocabularySharers() = default;
  virtual std::int64_t first_row() const = 0;                    ///< of this rank's w in the vocabulary
  virtual std::int64_t vocabulary() const = 0;                   ///< rows on all ranks together
  virtual void take_largest(std::span<float> values) const = 0;  ///< all-reduce, elementwise maximum, in place
  virtual void add_up(std::span<double> values) const = 0;       ///< all-reduce, elementwise sum, in place
};

/// The inputs of vocabulary_loss besides h and w. Owns nothing.
struct LossTerms {
  std::span<const std::int32_t> labels;  ///< [B * T]; negative: the token has no label
  std::span<const float> mask;           ///< [B * T] weights of the tokens
  double seed = 1;  ///< gradient of the objective with respect to the loss sum: loss scale / tokens, for example
  DType type = DType::float32;                 ///< logits and token losses are rounded to it (fp16_lm_cross_entropy)
  double softcap = 0;                          ///< if not 0, a logit x becomes softcap * tanh(x / softcap)
  const VocabularySharers* sharers = nullptr;  ///< null: w is whole. Else the gradient of h is this rank's summand only
};

/// The result: the summed loss, and the loss of each token.
struct VocabularyLoss {
  LossSum total;
  Var token_loss;  ///< [B, T], before the mask
};

/// Number of logit rows that exist at once for `tokens` tokens and `vocabulary` columns: about 64 MiB, a multiple of
/// 128 rows.
std::int64_t logit_rows(std::int64_t tokens, std::int64_t vocabulary);

/// Cross-entropy of the logits h w^T.
///
///   h   [B, T, C]
///   w   [V, C]: the output layer, or this rank's rows of it
///
/// Works on chunks of token rows (about 64 MiB of logits), so the [B T, V] logits never exist as a whole. If the tape
/// records, the gradients of h and w are computed in the same pass, already multiplied by `seed`, because a backward
/// pass would have to compute the logits again. The gradient of w is reported complete during backward. Throws
/// ShapeError if labels or mask have another size than h has rows.
VocabularyLoss vocabulary_loss(const Var& h, Leaf& w, const LossTerms& terms);

}  // namespace tessera::autograd
