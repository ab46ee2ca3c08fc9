#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// What a loss is: sums over the tokens that count, so that micro batches and ranks can be put together in any way.
struct LossSum {
  double sum = 0;    ///< sum of loss * mask
  double count = 0;  ///< sum of mask
};

/// Those who have the other rows of the head, when w has the rows [first_row, first_row + rows) of `vocabulary` alone.
/// Each calls the loss with the same h and labels; none ever sees the others' logits.
class VocabularySharers {
 public:
  virtual ~VocabularySharers() = default;
  virtual std::int64_t first_row() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  virtual void take_largest(std::span<float> values) const = 0;  ///< of all sharers, element by element
  virtual void add_up(std::span<double> values) const = 0;
};

/// What the loss of a micro batch is made of.
struct LossTerms {
  std::span<const std::int32_t> labels;  ///< [B * T]; negative: none
  std::span<const float> mask;           ///< [B * T] weights
  double seed = 1;  ///< d objective / d (sum of loss * mask): 1 / tokens of the micro batch, times the loss scale
  DType type = DType::float32;                 ///< logits and token losses are rounded to it (fp16_lm_cross_entropy)
  double softcap = 0;                          ///< not 0: logits x become softcap * tanh(x / softcap)
  const VocabularySharers* sharers = nullptr;  ///< nobody: w is the whole head. Then dh is this part's share of it
};

struct VocabularyLoss {
  LossSum total;
  Var token_loss;  ///< [B, T], before the mask
};

/// Cross-entropy of h [B, T, C] projected on the vocabulary by w [V, C], in chunks of rows: all logits never exist at
/// once. When the tape records, the gradients of h and w are made in the same pass, already times `seed`; w's is
/// complete after backward.
VocabularyLoss vocabulary_loss(const Var& h, Leaf& w, const LossTerms& terms);

}  // namespace tessera
