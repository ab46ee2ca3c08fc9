#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The loss as sums over tokens, so that the sums of micro-batches and ranks can be added before the division.
struct LossSum {
  double sum = 0;    ///< sum of loss * mask
  double count = 0;  ///< sum of mask
  LossSum& operator+=(const LossSum& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
};

/// The ranks that hold the other rows of a vocabulary-parallel output layer: w has rows [first_row, first_row + rows)
/// of `vocabulary`. Each of them calls vocabulary_loss with the same h and labels; the logits are never gathered.
class VocabularySharers {
 public:
  virtual ~VocabularySharers() = default;
  virtual std::int64_t first_row() const = 0;                    ///< index in the vocabulary of row 0 of this rank's w
  virtual std::int64_t vocabulary() const = 0;                   ///< number of rows on all ranks together
  virtual void take_largest(std::span<float> values) const = 0;  ///< all-reduce, elementwise maximum, in place
  virtual void add_up(std::span<double> values) const = 0;       ///< all-reduce, elementwise sum, in place
};

/// The inputs of vocabulary_loss besides h and w. Owns nothing.
struct LossTerms {
  std::span<const std::int32_t> labels;  ///< [B * T]; negative: the token has no label
  std::span<const float> mask;           ///< [B * T] weight of each token in the loss sum
  double seed = 1;  ///< gradient of the objective with respect to the weighted loss sum, for example scale / tokens
  DType type = DType::float32;  ///< logits and token losses are rounded to it (fp16_lm_cross_entropy)
  double softcap = 0;           ///< if not 0, a logit x becomes softcap * tanh(x / softcap)
  /// The ranks that w is sharded over; the gradient of h is then only this rank's summand. Null: w is whole.
  const VocabularySharers* sharers = nullptr;
  std::span<const float> weights = {};  ///< [B * T] weight of each token in the gradient; empty: the mask
  Leaf* bias = nullptr;                 ///< [V], rows as those of w; added to the logits; null: none
};

/// A low-rank adapter of the output layer: the logits are h w^T + u b^T + bias. With magnitudes m and norms n, which
/// are constants, and g = m / n for each row of w, they are g ((h - rest) w^T + u b^T) + rest w^T + bias.
struct LogitAdapter {
  Var u = {};                         ///< [B, T, rank] fp32, of the same tokens as h; empty: no adapter
  Leaf* b = nullptr;                  ///< [V, rank], rows as those of w
  Leaf* m = nullptr;                  ///< [V]; null: no magnitudes
  std::span<const float> norms = {};  ///< [V], with m; must outlive the backward pass
  Var rest = {};                      ///< like h, with m: what dropout takes from h; empty: no dropout
};

/// Result of vocabulary_loss: the summed loss, and the loss of each token.
struct VocabularyLoss {
  LossSum total;
  Var token_loss;  ///< [B, T] fp32, not multiplied by the mask
};

/// Cross-entropy of the logits h w^T.
///
///   h   [B, T, C]
///   w   [V, C]      the output layer, or this rank's rows of it
///
/// Works on chunks of token rows, of about 64 MiB of logits and 128 rows at least, so the [B T, V] logits never exist
/// as a whole. If the tape records, the gradients of h and w, multiplied by `seed`, are computed in the forward pass,
/// because the backward pass would have to compute the logits again; the gradient of w is reported complete during
/// Tape::backward. Throws ShapeError if `labels` and `mask` do not have one element per row of h, w has another width
/// than h, or the extents of bias or adapter do not fit. With magnitudes a chunk of logits is stored twice, with `rest`
/// three times.
VocabularyLoss vocabulary_loss(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter = {});

/// The losses of the tokens alone, for gradients that depend on them: [B, T] fp32, the same as
/// VocabularyLoss::token_loss. The backward pass takes a gradient for each loss (Tape::seed) and gives the gradients of
/// h and w; without a seed there are none. If w, the bias or b of the adapter are trained, or h is fp16, it computes
/// the logits a second time, chunk by chunk. Else the forward pass computes the gradient of h for a seed of 1, in fp32,
/// and the backward pass multiplies each row by its seed. Of `terms`, mask, seed and weights are not used; labels and
/// sharers must outlive the backward pass, in which all sharers must take part.
Var token_losses(const Var& h, Leaf& w, const LossTerms& terms, const LogitAdapter& adapter = {});

}  // namespace tessera::autograd
