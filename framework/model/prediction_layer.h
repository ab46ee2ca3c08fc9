#pragma once

#include "framework/model/transformer_layer.h"

namespace tessera::model {

/// A layer of multi-token prediction:
///
///   y = final_layernorm(transformer_layer(eh_proj [enorm(e) | hnorm(h)]))
///
/// h is the output of the previous prediction layer; for the first layer, the output of the decoder after its final
/// norm. e is the embedding of the token k places to the right of each token, for prediction layer k = 1, 2, and so on.
/// Tensor-parallel ranks divide the rows of eh_proj and gather its outputs. Source: Megatron-LM core,
/// MultiTokenPredictionLayer; Gloeckle et al., arXiv:2404.19737.
class PredictionLayer final : public nn::Module {
 public:
  /// `projection` is the initial distribution of eh_proj [hidden, 2 * hidden]; `layer` is the transformer layer.
  PredictionLayer(const std::string& name, std::int64_t hidden, const nn::NormKind& norm, nn::Init projection,
                  const nn::LayerMaker& maker, std::unique_ptr<TransformerLayer> layer);

  /// e, h and the result y are [B, T, hidden]; with sequence parallelism, this rank's tokens only. `recomputes`: the
  /// backward pass recomputes the transformer layer.
  autograd::Var forward(const autograd::Var& e, const autograd::Var& h, const nn::Pass& pass, bool recomputes) const;

 private:
  std::int64_t hidden_;
  std::unique_ptr<nn::Norm> embedding_norm_, hidden_norm_, final_norm_;
  std::unique_ptr<nn::GatheredLinear> projection_;
  std::unique_ptr<TransformerLayer> layer_;
};

}  // namespace tessera::model
