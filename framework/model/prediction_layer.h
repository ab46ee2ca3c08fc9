#pragma once

#include "framework/model/transformer_layer.h"

namespace tessera::model {

/// A layer of multi-token prediction: with e the embedding of the token that it has to know, and h the output of the
/// layer before it, or of the decoder after its final norm,
///
///   y = final_layernorm(transformer_layer(eh_proj [enorm(e) | hnorm(h)]))
///
/// Tensor-parallel ranks divide the rows of eh_proj and gather its outputs. Source: Megatron-LM core,
/// MultiTokenPredictionLayer; Gloeckle et al., arXiv:2404.19737.
class PredictionLayer final : public nn::Module {
 public:
  /// `projection` is the initial distribution of eh_proj.
  PredictionLayer(const std::string& name, std::int64_t hidden, const nn::NormKind& norm, nn::Init projection,
                  const nn::LayerMaker& maker, std::unique_ptr<TransformerLayer> layer);

  /// e, h and y are [B, T, hidden], or this rank's tokens with sequence parallelism. `recomputes`: compute the
  /// transformer layer again in the backward pass.
  autograd::Var forward(const autograd::Var& e, const autograd::Var& h, const nn::Pass& pass, bool recomputes) const;

 private:
  std::int64_t hidden_;
  std::unique_ptr<nn::Norm> embedding_norm_, hidden_norm_, final_norm_;
  std::unique_ptr<nn::GatheredLinear> projection_;
  std::unique_ptr<TransformerLayer> layer_;
};

}  // namespace tessera::model
