// A mixture of experts against plain loops in double: the result, and each gradient against central differences. The
// differences are far smaller than the gaps between scores, so they change no choice.
#include "framework/nn/mixture_of_experts.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tests/nn/layer_check.h"

namespace tessera::nn {
namespace {

using Score = kernels::RouterScore;
constexpr std::int64_t tokens = 6, hidden = 4;

std::vector<double> softmax(std::vector<double> x) {
  double sum = 0;
  for (auto& value : x) sum += value = std::exp(value);
  for (auto& value : x) value /= sum;
  return x;
}

/// The indices of the `count` largest values.
std::vector<std::size_t> largest(const std::vector<double>& x, std::size_t count) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] > x[b]; });
  order.resize(count);
  return order;
}

/// Makes the selection values of experts outside of the best groups the least.
void keep_groups(const kernels::RouterRule& rule, std::vector<double>& values) {
  if (rule.groups == 0) return;
  const auto size = values.size() / static_cast<std::size_t>(rule.groups);
  std::vector<double> scores;
  for (std::size_t g = 0; g < values.size(); g += size) {
    const std::vector<double> own(&values[g], &values[g] + size);
    double sum = 0;
    for (const auto e : largest(own, static_cast<std::size_t>(rule.topk / rule.groups_kept))) sum += own[e];
    scores.push_back(sum);
  }
  const auto kept = largest(scores, static_cast<std::size_t>(rule.groups_kept));
  for (std::size_t e = 0; e < values.size(); ++e)
    if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) values[e] = -1e9;
}

/// The weight of each expert for a token with these logits; 0: not chosen.
std::vector<double> weights_of(const kernels::RouterRule& rule, const std::vector<double>& logits,
                               const std::vector<double>& bias) {
  auto scores = logits;
  if (rule.score == Score::sigmoid)
    for (auto& s : scores) s = 1 / (1 + std::exp(-s));
  else if (rule.pre_softmax)
    scores = softmax(scores);
  auto values = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) values[e] += bias[e];
  keep_groups(rule, values);
  const auto chosen = largest(values, static_cast<std::size_t>(rule.topk));
  std::vector<double> own;
  for (const auto e : chosen) own.push_back(scores[e]);
  if (rule.score == Score::softmax && !rule.pre_softmax) own = softmax(own);
  if (rule.score == Score::sigmoid && rule.topk > 1) {
    const auto sum = std::accumulate(own.begin(), own.end(), 0.0);
    for (auto& w : own) w /= sum;
  }
  std::vector<double> all(logits.size());
  for (std::size_t k = 0; k < chosen.size(); ++k) all[chosen[k]] = own[k] * rule.scaling;
  return all;
}

constexpr double adapter_dropout = 0.4;
constexpr std::uint64_t adapter_seed = 5;
const std::vector<std::int64_t> adapted_samples = {7, 3};

/// Adapters of the router and of all experts but number 2; of those with odd numbers, gate and up have one each.
class ExpertAdapterPlan final : public AdapterPlan {
 public:
  std::vector<AdapterForm> adapters_of(const std::string& module, std::int64_t,
                                       std::span<const LinearPart> parts) const override {
    if (module.find("experts.2.") != std::string::npos || module.find("shared") != std::string::npos) return {};
    const bool odd = module.find("experts.1.") != std::string::npos || module.find("experts.3.") != std::string::npos;
    std::vector<AdapterForm> all;
    if (odd)
      for (const auto& part : parts) all.push_back({.part = part, .rank = 2, .scale = 0.75});
    if (all.empty()) all.push_back({.rank = 3, .scale = 0.5});
    for (auto& form : all) form.dropout = adapter_dropout;
    return all;
  }
};

/// Adds to the results y of a layer for one token, with the inputs x, those of its adapters.
using AddAdapters = std::function<void(const std::string& layer, std::size_t token, const std::vector<double>& x,
                                       std::vector<double>& y)>;

AddAdapters adapters_in(const Numbers& n, std::int64_t inner, bool gated, bool drops) {
  return [&n, inner, gated, drops](const std::string& layer, std::size_t token, const std::vector<double>& x,
                                   std::vector<double>& y) {
    const auto parts = layer.ends_with("fc1") ? parts_of_network(inner, gated ? 2 : 1) : std::vector<LinearPart>();
    for (const auto& form : ExpertAdapterPlan().adapters_of(layer, 0, parts)) {
      const auto name = layer + (form.part.name.empty() ? "" : "." + form.part.name);
      const auto &a = n.at(name + ".lora_A.weight"), &b = n.at(name + ".lora_B.weight");
      const RandomKey key(adapter_seed, Purpose::adapter_dropout, name_id(name + ".lora_A.weight"));
      const auto sample = static_cast<std::uint64_t>(adapted_samples[token / (tokens / 2)]);
      const auto rank = static_cast<std::size_t>(form.rank), in = x.size();
      const auto first = form.part.rows.empty() ? 0 : static_cast<std::size_t>(form.part.rows[0].first);
      for (std::size_t k = 0; k < rank; ++k) {
        double u = 0;
        for (std::size_t i = 0; i < in; ++i) {
          const bool dropped = drops && key.uniform(sample, token % (tokens / 2) * in + i) < adapter_dropout;
          if (!dropped) u += a[k * in + i] * x[i] / (drops ? 1 - adapter_dropout : 1);
        }
        for (std::size_t row = 0; row < b.size() / rank; ++row) y[first + row] += form.scale * b[row * rank + k] * u;
      }
    }
  };
}

/// The output of a feed-forward network for one token.
std::vector<double> network_of(const Numbers& n, const std::string& name, const std::vector<double>& x, bool gated,
                               std::size_t token, const AddAdapters& add, const kernels::GateForm& form = {}) {
  const auto rows = n.at(name + ".linear_fc1.weight").size() / static_cast<std::size_t>(hidden);
  auto h = linear_of(n, name + ".linear_fc1", x, rows);
  if (add) add(name + ".linear_fc1", token, x, h);
  std::vector<double> a(gated ? rows / 2 : rows);
  const double most = form.clamp == 0 ? HUGE_VAL : form.clamp;
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = gated ? act_of(kernels::Activation::silu, std::min(h[i], most)) *
                       (std::clamp(h[a.size() + i], -most, most) + form.offset)
                 : act_of(kernels::Activation::gelu_erf, h[i]);
  auto y = linear_of(n, name + ".linear_fc2", a, hidden);
  if (add) add(name + ".linear_fc2", token, a, y);
  return y;
}

/// The layer in double, as its header describes it.
std::vector<double> experts_of(const Numbers& n, const ExpertSizes& s, bool gated, const AddAdapters& adapters = {}) {
  const auto E = static_cast<std::size_t>(s.rule.experts), width = static_cast<std::size_t>(hidden);
  std::vector<double> y(n.at("x").size());
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    const std::vector<double> x(&n.at("x")[t * width], &n.at("x")[t * width] + width);
    const auto add = [&](const std::vector<double>& part, double weight) {
      for (std::size_t c = 0; c < width; ++c) y[t * width + c] += weight * part[c];
    };
    auto logits = linear_of(n, "mlp.router", x, E);
    if (adapters) adapters("mlp.router", t, x, logits);
    const auto weights = weights_of(s.rule, logits, found(n, "mlp.router.expert_bias"));
    for (std::size_t e = 0; e < E; ++e) {
      if (weights[e] == 0) continue;
      auto in = x;
      if (s.weights_on_input)
        for (auto& value : in) value *= weights[e];
      const auto name = text("mlp.experts.local_experts.", e);
      add(network_of(n, name, in, gated, t, adapters, s.gate), s.weights_on_input ? 1 : weights[e]);
    }
    if (s.shared_inner == 0) continue;
    double gate = 1;
    if (s.shared_gate) {
      const auto& w = n.at("mlp.shared_experts.gate_weight");
      gate = 1 / (1 + std::exp(-std::inner_product(x.begin(), x.end(), w.begin(), 0.0)));
    }
    add(network_of(n, "mlp.shared_experts", x, gated, t, {}), gate);
  }
  return y;
}

class MixtureOfExpertsTest : public LayerTest {
 protected:
  static ExpertSizes sizes(const kernels::RouterRule& rule) {
    ExpertSizes s;
    s.hidden = hidden;
    s.inner = 3;
    s.rule = rule;
    return s;
  }
  void check_layer(const ExpertSizes& s, bool gated = true) {
    MixtureOfExperts layer(gated ? FeedForwardKind::swiglu : FeedForwardKind::gelu_erf, "mlp", 0, s, {},
                           whole_layers());
    Pass pass;
    pass.B = 2;
    pass.T = pass.S = tokens / 2;
    check(
        layer, {2, tokens / 2, hidden}, [&](autograd::Tape&, const autograd::Var& x) { return layer.forward(x, pass); },
        [&](const Numbers& n) { return experts_of(n, s, gated); });
  }
  void check_with_adapters(const ExpertSizes& s, bool gated, bool drops) {
    const LayerMaker maker({}, std::make_shared<const ExpertAdapterPlan>());
    MixtureOfExperts layer(gated ? FeedForwardKind::swiglu : FeedForwardKind::gelu_erf, "mlp", 0, s, {}, maker);
    Pass pass;
    pass.B = 2;
    pass.T = pass.S = tokens / 2;
    pass.training = drops;
    pass.seed = adapter_seed;
    pass.sample_ids = adapted_samples;
    check(
        layer, {2, tokens / 2, hidden}, [&](autograd::Tape&, const autograd::Var& x) { return layer.forward(x, pass); },
        [&](const Numbers& n) { return experts_of(n, s, gated, adapters_in(n, s.inner, gated, drops)); });
  }
};

TEST_F(MixtureOfExpertsTest, AdaptersOfExpertsAndRouterActOnTheirRowsWithTheDropoutOfTheirTokens) {
  for (const bool gated : {true, false})
    for (const bool drops : {false, true}) {
      SCOPED_TRACE(text(gated ? "gated" : "not gated", drops ? ", with dropout" : ""));
      check_with_adapters(sizes({.experts = 4, .topk = 2}), gated, drops);
      auto on_input = sizes({.experts = 4, .topk = 1, .score = Score::sigmoid});
      on_input.weights_on_input = true;
      check_with_adapters(on_input, gated, drops);
    }
}

TEST_F(MixtureOfExpertsTest, WeightsAreASoftmaxOverTheChosenOrOverAllExperts) {
  for (const bool over_all : {false, true})
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(text(over_all ? "over all" : "over the chosen", gated ? ", gated" : ""));
      check_layer(sizes({.experts = 4, .topk = 2, .pre_softmax = over_all, .scaling = 1.5}), gated);
    }
}

TEST_F(MixtureOfExpertsTest, SigmoidsAreDividedByTheirSumWhereSeveralAreChosen) {
  for (const std::int64_t topk : {1, 2, 3}) {
    SCOPED_TRACE(text(topk, " of 4"));
    check_layer(sizes({.experts = 4, .topk = topk, .score = Score::sigmoid, .scaling = 2.5}));
  }
}

TEST_F(MixtureOfExpertsTest, ABiasChangesTheChoiceAndNoWeight) {
  auto s = sizes({.experts = 4, .topk = 2, .score = Score::sigmoid});
  s.has_bias = true;
  check_layer(s);
}

TEST_F(MixtureOfExpertsTest, OnlyTheBestGroupsOfExpertsAreChosenFrom) {
  for (const auto score : {Score::softmax, Score::sigmoid})
    check_layer(sizes({.experts = 6, .topk = 2, .score = score, .groups = 3, .groups_kept = 1}));
}

TEST_F(MixtureOfExpertsTest, WeightsMultiplyTheInputOfExperts) {
  auto s = sizes({.experts = 3, .topk = 1, .score = Score::sigmoid});
  s.weights_on_input = true;
  check_layer(s);
}

TEST_F(MixtureOfExpertsTest, BiasesOfExpertsHaveTheWeightsOfTheirChoices) {
  for (const bool gated : {true, false})
    for (const bool on_input : {false, true}) {
      SCOPED_TRACE(text(gated ? "gated" : "not gated", on_input ? ", weights on the input" : ""));
      auto s = sizes({.experts = 4, .topk = on_input ? 1 : 2, .score = on_input ? Score::sigmoid : Score::softmax});
      s.weights_on_input = on_input;
      s.router_bias = s.expert_bias = true;
      check_layer(s, gated);
      if (!on_input) check_with_adapters(s, gated, true);
    }
}

TEST_F(MixtureOfExpertsTest, GatesOfExpertsHaveBoundsAndAnOffset) {
  auto s = sizes({.experts = 4, .topk = 2});
  s.gate = {0.8, 1};
  check_layer(s);
}

TEST_F(MixtureOfExpertsTest, ASharedExpertSeesEveryTokenThroughItsGate) {
  for (const bool gate : {false, true}) {
    auto s = sizes({.experts = 4, .topk = 2});
    s.shared_inner = 5;
    s.shared_gate = gate;
    check_layer(s);
  }
}

TEST_F(MixtureOfExpertsTest, TheRouterComputesInDoubleIfAsked) {
  auto s = sizes({.experts = 4, .topk = 2});
  s.product = RouterProduct::float64;
  check_layer(s);
}

}  // namespace
}  // namespace tessera::nn
