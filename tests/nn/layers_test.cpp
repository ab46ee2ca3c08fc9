// The layers against plain loops in double: the result, and each gradient against central differences of those loops.
#include "framework/nn/layers.h"

#include <gtest/gtest.h>

#include "framework/autograd/ops/embedding.h"
#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"
#include "tests/nn/layer_check.h"

namespace tessera::nn {
namespace {

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
        rotate(&qkv[at], turn.dim, turn.layout, sequences.positions[row]);
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
