#include "framework/nn/mixture_of_experts.h"

#include <algorithm>

#include "framework/autograd/ops/experts.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/residual.h"
#include "framework/autograd/ops/router_noise.h"
#include "framework/autograd/ops/row_gate.h"
#include "framework/nn/auxiliary_log.h"
#include "framework/nn/expert_sharing.h"

namespace tessera::nn {

MixtureOfExperts::MixtureOfExperts(FeedForwardKind kind, const std::string& name, std::int64_t layer,
                                   const ExpertSizes& s, const ExpertRank& rank, const LayerMaker& maker)
    : FeedForward(name), sizes_(s), layer_(layer), act_(activation_of(kind)), gated_(is_gated(kind)) {
  router_ = &declare("router.weight", ParameterRole::router, {s.rule.experts, s.hidden}, s.init);
  if (s.router_bias) router_bias_ = &declare("router.bias", ParameterRole::bias, {s.rule.experts}, Init::zeros());
  if (s.has_bias) bias_ = &declare("router.expert_bias", ParameterRole::expert_bias, {s.rule.experts}, Init::zeros());
  router_adapters_ = adapters_of_router(maker.adapters());
  if (router_adapters_) contains(*router_adapters_);
  declare_experts(rank, maker.adapters());
  if (s.shared_inner == 0) return;
  if (s.shared_gate)
    shared_gate_ = &declare("shared_experts.gate_weight", ParameterRole::router, {1, s.hidden}, s.init);
  const FeedForwardSizes shared{.hidden = s.hidden,
                                .inner = s.shared_inner,
                                .has_bias = false,
                                .gate = s.gate,
                                .init = s.init,
                                .out_init = s.out_init,
                                .recomputes_activation = s.recomputes_activation};
  shared_ = make_feed_forward(kind, inner("shared_experts"), shared, maker);
  contains(*shared_);
}

std::unique_ptr<Adapters> MixtureOfExperts::adapters_of_router(const AdapterPlan* plan) const {
  if (!plan) return nullptr;
  const auto layer = inner("router");
  return make_adapters(layer, plan->adapters_of(layer, sizes_.hidden, {}), *router_, {}, {});
}

void MixtureOfExperts::declare_experts(const ExpertRank& rank, const AdapterPlan* plan) {
  const auto& s = sizes_;
  if (s.rule.experts % rank.ranks != 0)
    throw ShapeError(text(name(), ": ", s.rule.experts, " experts do not divide among ", rank.ranks, " ranks"));
  const TensorRank tensor{rank.tensor_rank, rank.tensor_ranks};
  const auto parts = gated_ ? 2 : 1;
  const auto rows = rows_of_network(s.inner, parts, tensor);
  const auto columns = tensor.part(1, s.inner, "channels of an expert");
  first_expert_ = rank.first(s.rule.experts);
  bias_part_ = 1.0 / rank.tensor_ranks;
  std::vector<const Parameter*> fc1, fc2;
  for (auto e = first_expert_; e < first_expert_ + rank.count(s.rule.experts); ++e) {
    const auto expert = text("experts.local_experts.", e, ".");
    const auto add = [&](const char* which, const Shape& shape, const Init& init, const TensorCut& cut, auto& leaves,
                         auto& weights) {
      auto& w = declare(expert + which, ParameterRole::expert, shape, init, cut);
      leaves.push_back(&w.leaf);
      weights.push_back(&w);
    };
    const auto add_bias = [&](const char* which, std::int64_t out, const TensorCut& cut, auto& leaves) {
      if (!s.expert_bias) return;
      leaves.push_back(&declare(expert + which, ParameterRole::bias_of_expert, {out}, Init::zeros(), cut).leaf);
    };
    add("linear_fc1.weight", {parts * s.inner, s.hidden}, s.init, rows, fc1_, fc1);
    add_bias("linear_fc1.bias", parts * s.inner, rows, fc1_bias_);
    add("linear_fc2.weight", {s.hidden, s.inner}, s.out_init, columns, fc2_, fc2);
    add_bias("linear_fc2.bias", s.hidden, {}, fc2_bias_);
  }
  if (!plan) return;
  const auto named = parts_of_network(s.inner, parts);
  declare_adapters(*plan, rank, {"linear_fc1", fc1, s.hidden, named, rows, {}}, fc1_adapters_);
  declare_adapters(*plan, rank, {"linear_fc2", fc2, s.inner, {}, {}, columns}, fc2_adapters_);
}

// What ranks exchange must not depend on which experts they have: every rank asks for all of them.
void MixtureOfExperts::declare_adapters(const AdapterPlan& plan, const ExpertRank& rank, const AdaptedLayer& layer,
                                        std::vector<std::unique_ptr<Adapters>>& all) {
  const auto end = first_expert_ + rank.count(sizes_.rule.experts);
  for (std::int64_t e = 0; e < sizes_.rule.experts; ++e) {
    const auto name = inner(text("experts.local_experts.", e, ".", layer.name));
    const auto forms = plan.adapters_of(name, layer.in, layer.parts);
    for (const auto& form : forms) drops_ = drops_ || form.dropout > 0;
    adapters_shared_ = adapters_shared_ || (rank.ranks > 1 && !forms.empty());
    if (e < first_expert_ || e >= end) continue;
    const auto& w = *layer.weights[static_cast<std::size_t>(e - first_expert_)];
    all.push_back(make_adapters(name, forms, w, layer.rows, layer.columns));
    if (all.back()) contains(*all.back());
  }
}

namespace {

/// The adapters of one layer of each expert; empty if no expert has any.
std::span<const autograd::ExpertAdapters> adapters_of_experts(autograd::Tape& tape, const Pass& pass,
                                                              std::span<const std::unique_ptr<Adapters>> experts) {
  if (std::none_of(experts.begin(), experts.end(), [](const auto& one) { return one != nullptr; })) return {};
  const auto all = tape.keep_array<autograd::ExpertAdapters>(experts.size());
  for (std::size_t e = 0; e < all.size(); ++e)
    all[e] = experts[e] ? experts[e]->of_expert(tape, pass) : autograd::ExpertAdapters{};
  return all;
}

}  // namespace

autograd::ExpertLayers MixtureOfExperts::layers(const autograd::Var& x, const Pass& pass) const {
  auto& tape = x.tape();
  autograd::ExpertLayers layers{{fc1_, adapters_of_experts(tape, pass, fc1_adapters_), fc1_bias_},
                                {fc2_, adapters_of_experts(tape, pass, fc2_adapters_), fc2_bias_}};
  layers.bias_part = bias_part_;
  layers.adapters_shared = adapters_shared_;
  if (!drops_ || !pass.training) return layers;
  const auto tokens = static_cast<std::size_t>(x.shape().rows()), each = tokens / static_cast<std::size_t>(pass.B);
  const auto samples = tape.keep_array<std::int64_t>(tokens), indices = tape.keep_array<std::int64_t>(tokens);
  tape.threads().parallel_for(tokens, 1024, [&](std::size_t first, std::size_t last) {
    for (auto t = first; t < last; ++t) {
      samples[t] = pass.sample_ids[t / each];
      indices[t] = pass.held.index(static_cast<std::int64_t>(t % each));
    }
  });
  layers.samples = samples;
  layers.tokens = indices;
  return layers;
}

autograd::RouterTerms MixtureOfExperts::terms(const Pass& pass, bool records) const {
  autograd::RouterTerms terms;
  terms.rule = sizes_.rule;
  terms.balance = sizes_.balance;
  terms.aux_coefficient = sizes_.aux_coefficient;
  terms.z_coefficient = sizes_.z_coefficient;
  // A recomputed layer runs twice; its auxiliary losses count only in the pass that is recorded.
  terms.seed = pass.training && records ? pass.auxiliary_seed : 0;
  terms.training = pass.training;
  terms.bias = bias_ ? &bias_->leaf : nullptr;
  terms.capacity_factor = sizes_.capacity_factor;
  terms.drop_policy = sizes_.drop_policy;
  terms.pads_experts = sizes_.pads_experts;
  terms.sequences = pass.B;
  terms.assumed = pass.assumed;
  return terms;
}

autograd::Var MixtureOfExperts::logits(const autograd::Var& x, const Pass& pass) const {
  auto& tape = x.tape();
  const auto site = static_cast<std::uint64_t>(layer_);
  const bool jitters = pass.training && sizes_.jitter > 0;
  const auto in =
      jitters ? autograd::jittered(x, sizes_.jitter, pass.noise(Purpose::router_jitter, site, sizes_.hidden)) : x;
  autograd::Var out;
  if (sizes_.product == RouterProduct::float64) {
    out = autograd::linear_in_double(in, router_->leaf);
  } else {
    const auto type = tape.type();
    // The jittered input is fp32, and so is its product, as in Megatron-LM.
    if (jitters || sizes_.product == RouterProduct::float32) tape.computes_in(DType::float32);
    out = autograd::linear(in, router_->leaf, router_bias_ ? &router_bias_->leaf : nullptr);
    tape.computes_in(type);
  }
  if (router_adapters_) out = router_adapters_->add_to(std::move(out), in, pass, pass.held);
  // Generation has no samples, so the router itself chooses.
  if (!sizes_.forces_balance || pass.sample_ids.empty()) return out;
  return autograd::random_logits(out, pass.noise(Purpose::forced_routing, site, sizes_.rule.experts));
}

autograd::Var MixtureOfExperts::shared_output(const autograd::Var& x, const Pass& pass) const {
  auto y = shared_->forward(x, pass);
  return shared_gate_ ? autograd::gated_rows(y, autograd::linear(x, shared_gate_->leaf, nullptr)) : y;
}

void MixtureOfExperts::show_weights(const autograd::ExpertChoices& choices, const Pass& pass, const Shape& x) const {
  const auto all = choices.weights.tape().make(x.with_width(choices.experts), false);
  const auto dense = all.floats(), weights = choices.weights.floats();
  std::fill(dense.begin(), dense.end(), 0.0F);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto token = i / static_cast<std::size_t>(choices.topk);
    if (choices.chosen[i] >= 0)
      dense[token * static_cast<std::size_t>(choices.experts) + static_cast<std::size_t>(choices.chosen[i])] =
          weights[i];
  }
  pass.show(inner("router.weights"), all);
}

autograd::Var MixtureOfExperts::forward(const autograd::Var& x, const Pass& pass) const {
  const auto kept = x.tape().kept();
  auto y = mixed(x, pass);
  if (!y.wants_grad()) x.tape().release_kept(kept);  // the choices, which only a backward pass reads
  return y;
}

autograd::Var MixtureOfExperts::mixed(const autograd::Var& x, const Pass& pass) const {
  const auto scores = logits(x, pass);
  if (pass.tap) pass.show(inner("router"), scores);
  const bool records = x.tape().records();
  const auto router_terms = terms(pass, records);
  const auto choices =
      pass.experts ? pass.experts->route(scores, router_terms, pass) : autograd::route(scores, router_terms);
  if (pass.tap) show_weights(choices, pass, x.shape());
  if (pass.log && pass.training && records)
    pass.log->add_routing(layer_, choices.aux_loss, choices.z_loss, choices.gap, choices.counts, choices.kept);
  const autograd::ExpertNetwork network{act_, gated_, sizes_.weights_on_input, sizes_.gate};
  autograd::ExpertTap tap;
  if (pass.tap && *pass.tap)
    tap = [&](std::size_t expert, const Tensor& output) {
      (*pass.tap)(text(inner("experts.local_experts."), first_expert_ + static_cast<std::int64_t>(expert)), output);
    };
  const auto all = layers(x, pass);
  auto y = pass.experts ? pass.experts->experts(x, choices, all, network, pass, tap)
                        : autograd::experts(x, choices, all, network, nullptr, tap);
  if (!shared_) return y;
  return autograd::dropout_add(shared_output(x, pass), y, {});
}

}  // namespace tessera::nn
