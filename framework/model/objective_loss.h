#pragma once

#include "framework/model/model.h"

namespace tessera::model {

/// The output layer of a model, and how its ranks share it.
struct OutputLayer {
  autograd::Leaf& weight;                                ///< [V, C]: this rank's rows
  DType type = DType::float32;                           ///< as in autograd::LossTerms
  double softcap = 0;                                    ///< as in autograd::LossTerms
  const autograd::VocabularySharers* sharers = nullptr;  ///< must outlive the backward pass; null: `weight` is whole
  nn::ContextRank context = {};                          ///< the tokens of each sample that this rank has
};

/// The loss of a micro-batch by mode.objective, for the last chunk of a model: `h` [B, T, C] is the input of the
/// output layer for this rank's tokens of `batch`. If the tape records, its backward pass gives the gradients of the
/// objective. Collective over the ranks that share the output layer, and over mode.groups->context. The total of an
/// objective that does not weigh tokens is on the first context-parallel rank alone, because it is not a sum over
/// tokens.
autograd::VocabularyLoss objective_loss(const autograd::Var& h, const OutputLayer& output, const TokenBatch& batch,
                                        const ForwardMode& mode);

}  // namespace tessera::model
