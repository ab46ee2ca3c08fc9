#include "framework/model/transformer_layer.h"

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/recompute.h"
#include "framework/autograd/ops/residual.h"
#include "framework/base/trace.h"

namespace tessera::model {

TransformerLayer::TransformerLayer(const std::string& name, std::int64_t number, const LayerForm& form,
                                   Submodules parts)
    : nn::Module(name), number_(number), form_(form), parts_(std::move(parts)) {
  if (parts_.before_attention) contains(*parts_.before_attention);
  contains(*parts_.attention);
  if (parts_.after_attention) contains(*parts_.after_attention);
  if (parts_.before_feed_forward) contains(*parts_.before_feed_forward);
  contains(*parts_.feed_forward);
  if (parts_.after_feed_forward) contains(*parts_.after_feed_forward);
}

autograd::Var TransformerLayer::forward(autograd::Var x, const nn::Pass& pass) const {
  x = form_.parallel ? side_by_side(x, pass) : one_after_the_other(std::move(x), pass);
  pass.show(name(), x);
  return x;
}

// The result of a norm is released as early as possible, so that its memory can be reused if the backward pass does not
// need it or recomputes it.
autograd::Var TransformerLayer::one_after_the_other(autograd::Var x, const nn::Pass& pass) const {
  auto& tape = x.tape();
  const auto branch = [&](const nn::Norm* before, const auto& through, const nn::Norm* after, std::uint64_t which) {
    if (!before) {
      x = join(through(x), x, after, which, pass);
      return;
    }
    auto normed = before->forward(x);
    const autograd::VarId result = normed;
    auto out = through(normed);
    if (form_.residual_after_norm)
      x = std::move(normed);
    else
      forget(tape, result);
    normed = {};
    x = join(std::move(out), x, after, which, pass);
    if (form_.residual_after_norm) forget(tape, result);
  };
  branch(
      parts_.before_attention.get(), [&](const auto& in) { return attend(in, pass); }, parts_.after_attention.get(), 1);
  branch(
      parts_.before_feed_forward.get(), [&](const auto& in) { return feed(in, pass); }, parts_.after_feed_forward.get(),
      2);
  return x;
}

autograd::Var TransformerLayer::side_by_side(const autograd::Var& x, const nn::Pass& pass) const {
  auto normed = parts_.before_attention->forward(x);
  auto mixed = attend(normed, pass);
  if (parts_.before_feed_forward) {
    forget(x.tape(), normed);
    normed = parts_.before_feed_forward->forward(x);
  }
  auto fed = feed(normed, pass);
  forget(x.tape(), normed);
  normed = {};
  const auto half = join(std::move(mixed), x, parts_.after_attention.get(), 1, pass);
  return join(std::move(fed), half, parts_.after_feed_forward.get(), 2, pass);
}

void TransformerLayer::forget(autograd::Tape& tape, autograd::VarId normed) const {
  if (form_.recomputes_norms) tape.discard(normed);
}

autograd::Var TransformerLayer::attend(const autograd::Var& normed, const nn::Pass& pass) const {
  const TraceSpan span(TraceKind::operation, parts_.attention->name().c_str());
  auto mixed = parts_.attention->forward(normed, pass);
  pass.show(parts_.attention->name(), mixed);
  return mixed;
}

autograd::Var TransformerLayer::feed(const autograd::Var& normed, const nn::Pass& pass) const {
  const TraceSpan span(TraceKind::operation, parts_.feed_forward->name().c_str());
  // `pass` is captured by value: recomputation happens in the backward pass, when the caller's Pass may be gone.
  const auto run = [this, pass](const autograd::Var& x) { return parts_.feed_forward->forward(x, pass); };
  auto fed = form_.recomputes_feed_forward ? autograd::recomputed(normed, run) : run(normed);
  pass.show(parts_.feed_forward->name(), fed);
  return fed;
}

autograd::Var TransformerLayer::join(autograd::Var branch, const autograd::Var& residual, const nn::Norm* after,
                                     std::uint64_t which, const nn::Pass& pass) const {
  const auto mask =
      pass.held.rows(pass.dropout(Purpose::hidden_dropout, site(which), form_.dropout), branch.shape().width());
  // Without a norm after the branch, dropout and residual addition are one operation.
  const auto multiplied = [&](autograd::Var x) {
    return form_.residual_multiplier == 1 ? std::move(x) : autograd::scaled(std::move(x), form_.residual_multiplier);
  };
  if (!after) return autograd::dropout_add(multiplied(std::move(branch)), residual, mask);
  if (mask.rate > 0) branch = autograd::dropout_add(std::move(branch), {}, mask);
  return autograd::dropout_add(multiplied(after->forward(branch)), residual, {});
}

autograd::Var recomputed_layers(const autograd::Var& x, std::span<const std::unique_ptr<TransformerLayer>> layers,
                                const nn::Pass& pass) {
  return autograd::recomputed(x, [layers, pass](autograd::Var y) {
    auto now = pass;
    if (y.tape().records()) now.tap = nullptr;  // the second time: the tap has already seen these values
    for (const auto& layer : layers) y = layer->forward(std::move(y), now);
    return y;
  });
}

}  // namespace tessera::model
