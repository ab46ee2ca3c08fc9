// The layers against plain loops in double: the result, and each gradient against central differences of those loops.
#include "framework/nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "framework/autograd/ops/embedding.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"
#include "framework/nn/flat_parameters.h"
#include "tests/gradcheck.h"

namespace tessera::nn {
namespace {

/// The input "x" and the parameters by name.
using Numbers = std::map<std::string, std::vector<double>>;

std::vector<double> drawn(std::int64_t count, std::mt19937& random, double deviation) {
  std::normal_distribution<float> draw(0, static_cast<float>(deviation));
  std::vector<double> out(static_cast<std::size_t>(count));
  for (auto& x : out) x = draw(random);
  return out;
}

/// Compares `layer` with `expected`: its result, then the gradients of the sum of the result times random numbers. Values
/// in fp32 differ by some 1e-6 from those in double, a wrong term by the size of the value.
class LayerTest : public testing::Test {
 protected:
  static constexpr double tolerance = 1e-4;

  void check(Module& module, const Shape& shape,
             const std::function<autograd::Var(autograd::Tape&, const autograd::Var&)>& layer,
             const std::function<std::vector<double>(const Numbers&)>& expected, bool has_input = true) {
    std::mt19937 random(11);
    const FlatParameters layout(module.parameters());
    std::vector<float> values(static_cast<std::size_t>(layout.elements())), gradients(values.size());
    layout.bind(values, gradients);
    Numbers numbers;
    for (const auto& range : layout.ranges()) {
      auto& own = numbers[range.parameter->name];
      own = drawn(range.count, random, 0.5);
      std::copy(own.begin(), own.end(), values.begin() + range.first);
    }
    numbers["x"] = drawn(shape.elements(), random, 1);
    std::vector<float> x(numbers["x"].begin(), numbers["x"].end());

    kernels::Threads threads(2);
    Arena arena;
    autograd::Tape tape(arena, threads, true);
    Numbers claimed;
    std::vector<double> weights;
    {
      const auto in = tape.input(Tensor(std::span(x), shape), true);
      const auto y = layer(tape, in);
      const auto wanted = expected(numbers);
      ASSERT_EQ(y.floats().size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(y.floats()[i], wanted[i], tolerance) << "result " << i;
      weights = drawn(y.value().elements(), random, 1);
      std::vector<float> seed(weights.begin(), weights.end());
      tape.seed(y, Tensor(std::span(seed), y.shape()));
      tape.backward();
      const auto dx = tape.take_grad(in);
      ASSERT_EQ(dx.empty(), !has_input);
      if (has_input) claimed["x"].assign(dx.tensor.floats().begin(), dx.tensor.floats().end());
    }
    for (const auto& range : layout.ranges())
      claimed[range.parameter->name].assign(gradients.begin() + range.first,
                                            gradients.begin() + range.first + range.count);
    const auto loss_at = [&](const std::string& name, const std::vector<double>& at) {
      auto moved = numbers;
      moved[name] = at;
      const auto y = expected(moved);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
      return sum;
    };
    for (const auto& [name, gradient] : claimed) {
      SCOPED_TRACE("gradient of " + name);
      expect_gradient([&, which = name](const std::vector<double>& at) { return loss_at(which, at); }, numbers.at(name),
                      gradient, 1e-5, tolerance);
    }
  }
};

/// y = x w^T + bias, rows of x of the width of w; without a bias: none.
std::vector<double> linear_of(const Numbers& n, const std::string& name, const std::vector<double>& x,
                              std::size_t out) {
  const auto& w = n.at(name + ".weight");
  const auto in = w.size() / out, rows = x.size() / in;
  const auto bias = n.find(name + ".bias");
  std::vector<double> y(rows * out);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias == n.end() ? 0 : bias->second[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  return y;
}

/// `count` values from `first` on, normalized; an empty bias: none.
void normalise(std::vector<double>& x, std::size_t first, std::size_t count, const NormKind& kind,
               const std::vector<double>& gain, const std::vector<double>& bias) {
  double mean = 0, square = 0;
  for (std::size_t i = 0; i < count; ++i) mean += x[first + i] / static_cast<double>(count);
  if (kind.kind == Normalization::rms_norm) mean = 0;
  for (std::size_t i = 0; i < count; ++i) square += std::pow(x[first + i] - mean, 2) / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i)
    x[first + i] = (x[first + i] - mean) / std::sqrt(square + kind.eps) * (gain[i] + kind.gain_offset()) +
                   (bias.empty() ? 0 : bias[i]);
}

std::vector<double> found(const Numbers& n, const std::string& name) {
  const auto at = n.find(name);
  return at == n.end() ? std::vector<double>() : at->second;
}

TEST_F(LayerTest, NormsOfEitherKindWithAndWithoutZeroCentredGain) {
  for (const auto type : {Normalization::layer_norm, Normalization::rms_norm})
    for (const bool centred : {false, true}) {
      const NormKind kind{type, 1e-3, centred};
      const auto norm = make_norm(kind, "norm", 7);
      EXPECT_EQ(norm->parameters().size(), type == Normalization::layer_norm ? 2U : 1U);
      check(
          *norm, {2, 3, 7}, [&](autograd::Tape&, const autograd::Var& x) { return norm->forward(x); },
          [&](const Numbers& n) {
            auto y = n.at("x");
            for (std::size_t row = 0; row < 6; ++row)
              normalise(y, row * 7, 7, kind, n.at("norm.weight"), found(n, "norm.bias"));
            return y;
          });
    }
}

TEST_F(LayerTest, AnInitialFactorOfANormIsThatOfItsOutput) {
  for (const bool centred : {false, true}) {
    const auto norm = make_norm({Normalization::rms_norm, 0, centred}, "norm", 4, 2.5);
    const auto init = norm->parameters()[0]->init;
    EXPECT_EQ(init.kind, Init::Kind::constant);
    EXPECT_EQ(init.std, centred ? 1.5 : 2.5);
  }
}

double act_of(kernels::Activation act, double x) {
  switch (act) {
    case kernels::Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2)));
    case kernels::Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case kernels::Activation::silu:
      return x / (1 + std::exp(-x));
    case kernels::Activation::relu:
      return std::max(x, 0.0);
    case kernels::Activation::squared_relu:
      return std::pow(std::max(x, 0.0), 2);
    default:
      return x;
  }
}

struct NamedKind {
  FeedForwardKind kind;
  kernels::Activation act;
  bool gated;
};

TEST_F(LayerTest, FeedForwardWithEachActivationAndGateWithAndWithoutBias) {
  using Kind = FeedForwardKind;
  for (const auto& [kind, act, is_gate] : {NamedKind{Kind::gelu_tanh, kernels::Activation::gelu_tanh, false},
                                           NamedKind{Kind::gelu_erf, kernels::Activation::gelu_erf, false},
                                           NamedKind{Kind::quick_gelu, kernels::Activation::quick_gelu, false},
                                           NamedKind{Kind::silu, kernels::Activation::silu, false},
                                           NamedKind{Kind::relu, kernels::Activation::relu, false},
                                           NamedKind{Kind::squared_relu, kernels::Activation::squared_relu, false},
                                           NamedKind{Kind::geglu, kernels::Activation::gelu_tanh, true},
                                           NamedKind{Kind::geglu_erf, kernels::Activation::gelu_erf, true},
                                           NamedKind{Kind::quick_geglu, kernels::Activation::quick_gelu, true},
                                           NamedKind{Kind::swiglu, kernels::Activation::silu, true},
                                           NamedKind{Kind::reglu, kernels::Activation::relu, true},
                                           NamedKind{Kind::squared_reglu, kernels::Activation::squared_relu, true}})
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(text("activation ", static_cast<int>(act), is_gate ? ", gated" : "", bias ? ", bias" : ""));
      const std::size_t inner = 5, hidden = 4;
      const auto layer = make_feed_forward(kind, "mlp", {.hidden = 4, .inner = 5, .has_bias = bias}, whole_layers());
      const auto expected = [&, function = act, gate = is_gate](const Numbers& n) {
        const auto width = gate ? 2 * inner : inner;
        const auto h = linear_of(n, "mlp.linear_fc1", n.at("x"), width);
        std::vector<double> a;
        for (std::size_t row = 0; row < h.size() / width; ++row)
          for (std::size_t i = 0; i < inner; ++i)
            a.push_back(act_of(function, h[row * width + i]) * (gate ? h[row * width + inner + i] : 1));
        return linear_of(n, "mlp.linear_fc2", a, hidden);
      };
      check(
          *layer, {2, 3, 4}, [&](autograd::Tape&, const autograd::Var& x) { return layer->forward(x, Pass{}); },
          expected);
    }
}

TEST(FeedForward, EachGateHasTheActivationOfItsElementwiseKind) {
  EXPECT_EQ(gated(FeedForwardKind::gelu_tanh), FeedForwardKind::geglu);
  EXPECT_EQ(gated(FeedForwardKind::silu), FeedForwardKind::swiglu);
  EXPECT_EQ(gated(FeedForwardKind::swiglu), FeedForwardKind::swiglu);
  EXPECT_TRUE(is_gated(FeedForwardKind::reglu));
  EXPECT_FALSE(is_gated(FeedForwardKind::relu));
}

constexpr std::int64_t B = 2, T = 5, hidden_size = 6;

/// Five tokens of two samples; the second sample has two documents. Positions begin anew with each document.
struct Sequences {
  std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 0, 1, 0, 1, 2};
  std::vector<std::int32_t> first = {0, 0, 0, 0, 0, 0, 0, 2, 2, 2}, last = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  std::vector<std::int32_t> window = {0, 0, 1, 2, 3, 0, 0, 2, 2, 3};  // two tokens
  std::vector<std::int64_t> ids = {3, 8};
  Pass pass() const {
    Pass pass;
    pass.B = B;
    pass.T = pass.S = T;
    pass.positions = positions;
    pass.visible = {first, last};
    pass.windowed = {window, last};
    pass.sample_ids = ids;
    return pass;
  }
};

struct RotaryCase {
  std::int64_t dim = 0;  ///< 0: none
  kernels::RotaryLayout layout = kernels::RotaryLayout::half;
};

/// Self-attention in double, as the layer's header describes it.
std::vector<double> attention_of(const Numbers& n, const AttentionSizes& s, const RotaryCase& turn,
                                 const Sequences& sequences) {
  const auto D = static_cast<std::size_t>(s.channels), H = static_cast<std::size_t>(s.heads),
             G = static_cast<std::size_t>(s.groups), per_group = H / G + 2, width = G * per_group * D;
  auto qkv = linear_of(n, "attention.linear_qkv", n.at("x"), width);
  for (std::size_t row = 0; row < B * T; ++row)
    for (std::size_t g = 0; g < G; ++g)
      for (std::size_t h = 0; h + 1 < per_group; ++h) {
        const auto at = row * width + (g * per_group + h) * D;
        const std::string of = h + 2 < per_group ? "attention.q_layernorm." : "attention.k_layernorm.";
        if (s.head_norm) normalise(qkv, at, D, *s.head_norm, n.at(of + "weight"), found(n, of + "bias"));
        for (std::int64_t i = 0; i < turn.dim / 2; ++i) {
          const bool half = turn.layout == kernels::RotaryLayout::half;
          auto& a = qkv[at + static_cast<std::size_t>(half ? i : 2 * i)];
          auto& b = qkv[at + static_cast<std::size_t>(half ? i + turn.dim / 2 : 2 * i + 1)];
          const double angle = sequences.positions[row] *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(turn.dim));
          const auto turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
  std::vector<double> mixed(B * T * H * D);
  const auto& first = s.windowed ? sequences.window : sequences.first;
  for (std::size_t row = 0; row < B * T; ++row)
    for (std::size_t h = 0; h < H; ++h) {
      const auto g = h / (H / G), sample = row / T * T;
      const auto* q = &qkv[row * width + (g * per_group + h % (H / G)) * D];
      std::vector<double> p;
      double sum = 0;
      for (auto t = first[row]; t <= sequences.last[row]; ++t) {
        const auto* k = &qkv[(sample + static_cast<std::size_t>(t)) * width + (g * per_group + H / G) * D];
        double score = 0;
        for (std::size_t d = 0; d < D; ++d) score += s.scale * q[d] * k[d];
        if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
        p.push_back(std::exp(score));
        sum += p.back();
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        const auto t = sample + static_cast<std::size_t>(first[row]) + i;
        const auto* v = &qkv[t * width + (g * per_group + H / G + 1) * D];
        for (std::size_t d = 0; d < D; ++d) mixed[row * H * D + h * D + d] += p[i] / sum * v[d];
      }
    }
  return linear_of(n, "attention.linear_proj", mixed, hidden_size);
}

class AttentionTest : public LayerTest {
 protected:
  static AttentionSizes sizes(std::int64_t groups) {
    AttentionSizes s;
    s.hidden = hidden_size;
    s.heads = 4;
    s.groups = groups;
    s.channels = 4;
    s.scale = 0.5;
    return s;
  }
  void check_attention(const AttentionSizes& s, const RotaryCase& turn = {}) {
    std::optional<RotaryEmbedding> rotary;
    if (turn.dim > 0) rotary.emplace(turn.dim, 10000.0, turn.layout, 16);
    SelfAttention layer("attention", 0, s, rotary ? &*rotary : nullptr, whole_layers());
    const Sequences sequences;
    const auto pass = sequences.pass();
    check(
        layer, {B, T, hidden_size}, [&](autograd::Tape&, const autograd::Var& x) { return layer.forward(x, pass); },
        [&](const Numbers& n) { return attention_of(n, s, turn, sequences); });
  }
};

TEST_F(AttentionTest, GroupsOfQueryHeadsShareAKeyAndAValueHead) {
  for (const std::int64_t groups : {1, 2, 4}) {
    SCOPED_TRACE(text(groups, " groups"));
    check_attention(sizes(groups));
  }
}

TEST_F(AttentionTest, BiasesOfEitherProjection) {
  for (const bool first : {true, false}) {
    auto s = sizes(2);
    s.qkv_bias = first;
    s.out_bias = !first;
    check_attention(s);
  }
}

TEST_F(AttentionTest, RotaryEmbeddingOfAllOrSomeChannelsInEitherLayout) {
  for (const auto layout : {kernels::RotaryLayout::half, kernels::RotaryLayout::interleaved})
    for (const std::int64_t dim : {2, 4}) {
      SCOPED_TRACE(text(dim, " rotary channels, layout ", static_cast<int>(layout)));
      check_attention(sizes(2), {dim, layout});
    }
}

TEST_F(AttentionTest, NormsOfQueryAndKeyHeadsBeforeTheRotaryEmbedding) {
  for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm})
    for (const bool centred : {false, true}) {
      auto s = sizes(2);
      s.head_norm = NormKind{kind, 1e-3, centred};
      s.qkv_bias = true;
      check_attention(s, {4, kernels::RotaryLayout::half});
    }
}

TEST_F(AttentionTest, WindowsAndSoftCappedScores) {
  auto s = sizes(4);
  s.windowed = true;
  s.softcap = 1.5;
  check_attention(s);
}

TEST_F(AttentionTest, RecomputationChangesNothing) {
  auto s = sizes(2);
  s.recomputed = true;
  s.qkv_bias = s.out_bias = true;
  check_attention(s, {4, kernels::RotaryLayout::half});
}

/// Tables for token and position embeddings.
class Tables final : public Module {
 public:
  Tables()
      : Module("embedding"),
        words(declare("words", ParameterRole::word_embedding, {7, 3}, {})),
        places(declare("positions", ParameterRole::position_embedding, {5, 3}, {})) {}
  Parameter &words, &places;
};

TEST_F(LayerTest, EmbeddingsOfTokensThatRepeatAddTheirGradients) {
  const std::vector<std::int32_t> tokens = {6, 0, 6, 6, 2, 0, 3, 6}, positions = {0, 1, 2, 3, 0, 1, 4, 3};
  for (const bool learned : {true, false}) {
    Tables tables;
    check(
        tables, {1},
        [&](autograd::Tape& tape, const autograd::Var&) {
          return autograd::embedding(tape, {2, 4}, tokens, tables.words.leaf, positions,
                                     learned ? &tables.places.leaf : nullptr);
        },
        [&](const Numbers& n) {
          std::vector<double> y;
          for (std::size_t i = 0; i < tokens.size(); ++i)
            for (std::size_t c = 0; c < 3; ++c)
              y.push_back(n.at("embedding.words")[static_cast<std::size_t>(tokens[i]) * 3 + c] +
                          (learned ? n.at("embedding.positions")[static_cast<std::size_t>(positions[i]) * 3 + c] : 0));
          return y;
        },
        false);
  }
}

}  // namespace
}  // namespace tessera::nn
