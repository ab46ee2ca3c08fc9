// Recorded operators on this framework's kernels.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "framework/base/error.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/attention.h"
#include "framework/kernels/cross_entropy.h"
#include "framework/kernels/norm.h"
#include "framework/kernels/rotary.h"
#include "framework/kernels/vector.h"
#include "framework/nn/attention_layer.h"
#include "tests/golden/operators.h"

namespace tessera::golden {
namespace {

using Floats = std::vector<float>;
using Results = OperatorResults;

/// Three threads: whatever the machine has, the tiles of one tensor are shared.
constexpr int crew = 3;

std::vector<double> wide(const Floats& x) { return {x.begin(), x.end()}; }

Results rmsnorm(const OperatorInputs& in, float offset) {
  kernels::Threads threads(crew);
  const auto &x = in.at("in.x"), &gain = in.at("in.weight");
  Floats y(x.size()), inv(x.size() / gain.size()), dx(x.size()), dgain(gain.size());
  kernels::rmsnorm_forward(
      threads,
      {.x = x, .gain = gain, .eps = in.attributes.at("epsilon"), .gain_offset = offset, .y = y, .inv_rms = inv});
  kernels::rmsnorm_backward(threads, {.dy = in.at("cotangent.y"),
                                      .x = x,
                                      .gain = gain,
                                      .gain_offset = offset,
                                      .inv_rms = inv,
                                      .dx = dx,
                                      .add = false,
                                      .dgain = dgain});
  return {{"out.y", wide(y)}, {"grad.x", wide(dx)}, {"grad.weight", wide(dgain)}};
}

Results layernorm(const OperatorInputs& in, float offset) {
  kernels::Threads threads(crew);
  const auto &x = in.at("in.x"), &gain = in.at("in.weight"), &bias = in.at("in.bias");
  const auto rows = x.size() / gain.size();
  Floats y(x.size()), mean(rows), inv(rows), dx(x.size()), dgain(gain.size()), dbias(gain.size());
  kernels::layernorm_forward(threads, {.x = x,
                                       .gain = gain,
                                       .bias = bias,
                                       .eps = in.attributes.at("epsilon"),
                                       .gain_offset = offset,
                                       .y = y,
                                       .mean = mean,
                                       .inv_std = inv});
  kernels::layernorm_backward(threads, {.dy = in.at("cotangent.y"),
                                        .x = x,
                                        .gain = gain,
                                        .gain_offset = offset,
                                        .mean = mean,
                                        .inv_std = inv,
                                        .dx = dx,
                                        .add = false,
                                        .dgain = dgain,
                                        .dbias = dbias});
  return {{"out.y", wide(y)}, {"grad.x", wide(dx)}, {"grad.weight", wide(dgain)}, {"grad.bias", wide(dbias)}};
}

Results activation(const OperatorInputs& in, kernels::Activation act) {
  kernels::Threads threads(crew);
  const auto& x = in.at("in.x");
  Floats y(x.size()), dx(x.size());
  kernels::activation_forward(threads, act, x, y);
  kernels::activation_backward(threads, act, in.at("cotangent.y"), x, dx, false);
  return {{"out.y", wide(y)}, {"grad.x", wide(dx)}};
}

Results gated(const OperatorInputs& in, kernels::Activation act) {
  kernels::Threads threads(crew);
  const auto& x = in.at("in.x");
  const auto width = in.shape("in.x").back() / 2, rows = static_cast<std::int64_t>(x.size()) / (2 * width);
  Floats y(x.size() / 2), dx(x.size());
  kernels::gated_forward(threads, act, rows, width, x, y);
  kernels::gated_backward(threads, act, rows, width, in.at("cotangent.y"), x, dx, false);
  return {{"out.y", wide(y)}, {"grad.x", wide(dx)}};
}

/// The kernel ignores negative labels; other ignored ones become negative here.
std::vector<std::int32_t> labels_of(const OperatorInputs& in) {
  const auto ignored = in.attributes.value("ignore_index", std::int64_t{-100});
  std::vector<std::int32_t> labels;
  for (const auto label : in.integers.at("in.labels")) {
    labels.push_back(label == ignored ? -1 : static_cast<std::int32_t>(label));
  }
  return labels;
}

Results cross_entropy(const OperatorInputs& in) {
  kernels::Threads threads(crew);
  auto logits = in.at("in.logits");
  const auto vocabulary = in.shape("in.logits").back();
  const auto labels = labels_of(in);
  const auto counted = std::count_if(labels.begin(), labels.end(), [](auto label) { return label >= 0; });
  Floats loss(labels.size()), first(labels.size());
  const std::vector<std::int32_t> zeros(labels.size());
  tessera::kernels::cross_entropy(threads, vocabulary, logits, zeros, {}, first, false);
  std::vector<double> lse;  // -log softmax of the first column, and that column
  for (std::size_t r = 0; r < labels.size(); ++r) {
    lse.push_back(static_cast<double>(first[r]) + logits[r * static_cast<std::size_t>(vocabulary)]);
  }
  const Floats weight(labels.size(), static_cast<float>(in.at("cotangent.loss").at(0) / static_cast<double>(counted)));
  tessera::kernels::cross_entropy(threads, vocabulary, logits, labels, weight, loss, true);
  const double mean = std::accumulate(loss.begin(), loss.end(), 0.0) / static_cast<double>(counted);
  return {{"out.token_loss", wide(loss)}, {"out.loss", {mean}}, {"out.lse", lse}, {"grad.logits", wide(logits)}};
}

Results rotary(const OperatorInputs& in, kernels::RotaryLayout layout) {
  kernels::Threads threads(crew);
  const auto& shape = in.shape("in.x");  // [batch, seq, heads, channels]
  const auto heads = shape.at(2), channels = shape.at(3);
  const std::int64_t turning = in.attributes.at("rotary_dim");
  std::vector<std::int32_t> positions;
  for (const auto p : in.integers.at("in.position_ids")) positions.push_back(static_cast<std::int32_t>(p));
  const auto places = *std::max_element(positions.begin(), positions.end()) + 1;
  std::vector<std::int64_t> offsets;
  for (std::int64_t h = 0; h < heads; ++h) offsets.push_back(h * channels);
  const nn::RotaryEmbedding embedding(turning, in.attributes.at("base"), layout, places);
  const auto tables = embedding.tables(threads, offsets);
  const kernels::RotaryExtents e{shape.at(0) * shape.at(1), heads * channels, turning, layout};
  auto y = in.at("in.x"), dx = in.at("cotangent.y");
  tessera::kernels::rotary(threads, e, offsets, positions, tables.cosine, tables.sine, false, y);
  tessera::kernels::rotary(threads, e, offsets, positions, tables.cosine, tables.sine, true, dx);
  return {{"out.y", wide(y)}, {"grad.x", wide(dx)}};
}

/// The intervals of visible keys, for each sample and query. `visible` is [batch or 1, 1, queries, keys].
struct Intervals {
  std::vector<std::int32_t> first, last;

  Intervals(const OperatorInputs& in, const kernels::AttentionExtents& e) {
    const auto& visible = in.integers.at("in.visible");
    const auto masks = in.shape("in.visible").at(0);
    if (in.shape("in.visible").at(1) != 1) throw NotBuilt{"a mask for each head"};
    for (std::int64_t i = 0; i < e.B * e.T; ++i) {
      const auto row = (masks == 1 ? i % e.T : i) * e.S;
      add(std::span(visible).subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(e.S)));
    }
  }

 private:
  void add(std::span<const std::int64_t> keys) {
    const auto begin = std::find(keys.begin(), keys.end(), 1) - keys.begin();
    const auto end = std::find(keys.begin() + begin, keys.end(), 0) - keys.begin();
    if (std::find(keys.begin() + end, keys.end(), 1) != keys.end()) throw NotBuilt{"a query that sees keys with gaps"};
    first.push_back(static_cast<std::int32_t>(begin));
    last.push_back(static_cast<std::int32_t>(end) - 1);
  }
};

Results attention(const OperatorInputs& in) {
  kernels::Threads threads(crew);
  const auto &q_shape = in.shape("in.q"), &k_shape = in.shape("in.k");  // [batch, seq, heads, channels]
  const auto H = q_shape.at(2), G = k_shape.at(2), D = q_shape.at(3);
  const kernels::HeadRows queries{H * D, 0, H / G * D, D}, keys{G * D, 0, D};
  const kernels::AttentionExtents e{
      q_shape.at(0), q_shape.at(1), k_shape.at(1), H, G, D, in.attributes.at("scale"), queries, keys, keys, queries};
  const Intervals seen(in, e);
  const auto &q = in.at("in.q"), &k = in.at("in.k"), &v = in.at("in.v");
  Floats y(q.size()), lse(static_cast<std::size_t>(e.B * H * e.T)), dq(q.size()), dk(k.size()), dv(v.size());
  kernels::attention_forward(threads, e, {seen.first, seen.last}, {}, {.q = q, .k = k, .v = v, .o = y, .lse = lse});
  kernels::attention_backward(
      threads, e, {seen.first, seen.last}, {},
      {.q = q, .k = k, .v = v, .o = y, .lse = lse, .d_o = in.at("cotangent.y"), .dq = dq, .dk = dk, .dv = dv});
  return {{"out.y", wide(y)}, {"out.lse", wide(lse)}, {"grad.q", wide(dq)}, {"grad.k", wide(dk)}, {"grad.v", wide(dv)}};
}

Results adamw(const OperatorInputs& in) {
  const auto& a = in.attributes;
  kernels::AdamWFactors f{
      a.at("lr"), a.at("adam_beta1"), a.at("adam_beta2"), a.at("adam_eps"), a.at("weight_decay"), 1, 0, 0};
  const auto& grads = in.at("in.grads");
  Results out;
  auto p = in.at("in.p");
  Floats m(p.size()), v(p.size());
  for (std::size_t step = 0; step * p.size() < grads.size(); ++step) {
    f.fix1 = 1 - std::pow(f.beta1, static_cast<double>(step + 1));
    f.fix2 = 1 - std::pow(f.beta2, static_cast<double>(step + 1));
    kernels::adamw_update(f, p, std::span(grads).subspan(step * p.size(), p.size()), m, v);
    for (const auto& [name, values] : {std::pair{"out.p", &p}, std::pair{"out.m", &m}, std::pair{"out.v", &v}}) {
      auto& rows = out[name];
      rows.insert(rows.end(), values->begin(), values->end());
    }
  }
  return out;
}

struct Operator {
  std::string name;  ///< a recorded operator is the one with the longest of these names that its own begins with
  std::function<Results(const OperatorInputs&)> run;
};

std::vector<Operator> operators() {
  return {{"rmsnorm", [](const auto& in) { return rmsnorm(in, 0); }},
          {"rmsnorm_1p", [](const auto& in) { return rmsnorm(in, 1); }},
          {"layernorm", [](const auto& in) { return layernorm(in, 0); }},
          {"layernorm_1p", [](const auto& in) { return layernorm(in, 1); }},
          {"cross_entropy", cross_entropy},
          {"gelu_tanh", [](const auto& in) { return activation(in, kernels::Activation::gelu_tanh); }},
          {"gelu_erf", [](const auto& in) { return activation(in, kernels::Activation::gelu_erf); }},
          {"quick_gelu", [](const auto& in) { return activation(in, kernels::Activation::quick_gelu); }},
          {"silu", [](const auto& in) { return activation(in, kernels::Activation::silu); }},
          {"relu", [](const auto& in) { return activation(in, kernels::Activation::relu); }},
          {"squared_relu", [](const auto& in) { return activation(in, kernels::Activation::squared_relu); }},
          {"swiglu", [](const auto& in) { return gated(in, kernels::Activation::silu); }},
          {"geglu", [](const auto& in) { return gated(in, kernels::Activation::gelu_tanh); }},
          {"geglu_erf", [](const auto& in) { return gated(in, kernels::Activation::gelu_erf); }},
          {"rotary_half", [](const auto& in) { return rotary(in, kernels::RotaryLayout::half); }},
          {"rotary_interleaved", [](const auto& in) { return rotary(in, kernels::RotaryLayout::interleaved); }},
          {"attention", attention},
          {"adamw", adamw}};
}

}  // namespace

Results run_operator(const std::string& name, const OperatorInputs& inputs) {
  const Operator* best = nullptr;
  const auto all = operators();
  for (const auto& one : all) {
    const bool fits = name == one.name || name.rfind(one.name + "_", 0) == 0;
    if (fits && (best == nullptr || one.name.size() > best->name.size())) best = &one;
  }
  if (best == nullptr) throw NotBuilt{"operator " + name};
  return best->run(inputs);
}

}  // namespace tessera::golden
