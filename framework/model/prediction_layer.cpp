#include "framework/model/prediction_layer.h"

#include "framework/autograd/ops/columns.h"

namespace tessera::model {

PredictionLayer::PredictionLayer(const std::string& name, std::int64_t hidden, const nn::NormKind& norm,
                                 nn::Init projection, const nn::LayerMaker& maker,
                                 std::unique_ptr<TransformerLayer> layer)
    : nn::Module(name),
      hidden_(hidden),
      embedding_norm_(nn::make_norm(norm, inner("enorm"), hidden)),
      hidden_norm_(nn::make_norm(norm, inner("hnorm"), hidden)),
      final_norm_(nn::make_norm(norm, inner("final_layernorm"), hidden)),
      projection_(maker.gathered(inner("eh_proj"), {.in = 2 * hidden, .out = hidden, .init = projection})),
      layer_(std::move(layer)) {
  contains(*embedding_norm_);
  contains(*hidden_norm_);
  contains(*projection_);
  contains(*layer_);
  contains(*final_norm_);
}

autograd::Var PredictionLayer::forward(const autograd::Var& e, const autograd::Var& h, const nn::Pass& pass,
                                       bool recomputes) const {
  const auto both = autograd::side_by_side(embedding_norm_->forward(e), hidden_norm_->forward(h));
  auto y = projection_->forward(both, hidden_, pass).own;
  y = recomputes ? recomputed_layers(y, {&layer_, 1}, pass) : layer_->forward(std::move(y), pass);
  y = final_norm_->forward(y);
  pass.show(final_norm_->name(), y);
  pass.show(name(), y);
  return y;
}

}  // namespace tessera::model
