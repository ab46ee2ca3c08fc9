#include "framework/model/transformer_layer.h"

#include "framework/autograd/ops/residual.h"

namespace tessera {

TransformerLayer::TransformerLayer(const std::string& name, std::int64_t number, double dropout, Parts parts)
    : Module(name), number_(number), dropout_(dropout), parts_(std::move(parts)) {
  contains(*parts_.before_attention);
  contains(*parts_.attention);
  contains(*parts_.before_feed_forward);
  contains(*parts_.feed_forward);
}

Var TransformerLayer::forward(Var x, const Pass& pass) const {
  auto mixed = parts_.attention->forward(parts_.before_attention->forward(x), pass);
  pass.show(parts_.attention->name(), mixed);
  x = dropout_add(std::move(mixed), x, pass.dropout(Purpose::hidden_dropout, site(1), dropout_));
  auto fed = parts_.feed_forward->forward(parts_.before_feed_forward->forward(x), pass);
  pass.show(parts_.feed_forward->name(), fed);
  x = dropout_add(std::move(fed), x, pass.dropout(Purpose::hidden_dropout, site(2), dropout_));
  pass.show(name(), x);
  return x;
}

}  // namespace tessera
