#pragma once

#include "framework/model/model.h"

namespace tessera::model {

/// The output layer of a model, and how its ranks share it.
struct OutputLayer {
  autograd::Leaf& weight;                                ///< [V, C]: this rank's rows
  autograd::Leaf* bias = nullptr;                        ///< as in autograd::LossTerms
  DType type = DType::float32;                           ///< as in autograd::LossTerms
  double softcap = 0;                                    ///< as in autograd::LossTerms
  const autograd::VocabularySharers* sharers = nullptr;  ///< must outlive the backward pass; null: `weight` is whole
  nn::ContextRank context = {};                          ///< the tokens of each sample that this rank has
  autograd::LogitAdapter adapter = {};
};

/// The tokens of each sample that a rank has between layers.
struct TokenShare {
  nn::ContextRank context = {};
  std::int64_t first = 0;      ///< index of its first token among those of its context-parallel rank
  bool cuts_sequence = false;  ///< the tensor-parallel ranks have different tokens
};
/// The loss of a micro-batch by mode.objective, which judges one score of each token: the product of `h`, the tokens
/// that this rank has between layers, with `weight` [1, C], which all ranks have. Throws ConfigError for an objective
/// that weighs tokens.
autograd::VocabularyLoss score_loss(const autograd::Var& h, autograd::Leaf& weight, const TokenShare& tokens,
                                    const TokenBatch& batch, const ForwardMode& mode);

/// The loss of a micro-batch by mode.objective, for the last chunk of a model: `h` [B, T, C] is the input of the
/// output layer for this rank's tokens of `batch`. If the tape records, its backward pass gives the gradients of the
/// objective. Collective over the ranks that share the output layer, and over mode.groups->context. The total of an
/// objective that does not weigh tokens is on the first context-parallel rank alone, because it is not a sum over
/// tokens.
autograd::VocabularyLoss objective_loss(const autograd::Var& h, const OutputLayer& output, const TokenBatch& batch,
                                        const ForwardMode& mode);

}  // namespace tessera::model
