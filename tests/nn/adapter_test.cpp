// Layers with adapters against the same layers with the weight W + scale B A, in double; and which part of an adapter
// each tensor-parallel rank has.
#include "framework/nn/adapter.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "framework/nn/attention_layer.h"
#include "framework/nn/feed_forward.h"
#include "framework/nn/weight_parts.h"
#include "tests/nn/layer_check.h"

namespace tessera::nn {
namespace {

/// Adapters for the parts of every layer or, in layers without parts, for the whole.
class EveryLayer final : public AdapterPlan {
 public:
  explicit EveryLayer(bool parts, bool magnitudes = false) : parts_(parts), magnitudes_(magnitudes) {}
  std::vector<AdapterForm> adapters_of(const std::string&, std::int64_t,
                                       std::span<const LinearPart> parts) const override {
    std::vector<AdapterForm> all;
    if (parts_)
      for (const auto& part : parts)
        all.push_back({.part = part, .rank = 2 + static_cast<std::int64_t>(all.size()), .scale = 0.75});
    if (all.empty()) all.push_back({.rank = 3, .scale = 1.5});
    for (auto& form : all) form.magnitudes = magnitudes_;
    return all;
  }

 private:
  bool parts_, magnitudes_;
};

/// Adds scale B A of one adapter to the rows `first`.. of the weight `layer`.
void merge(Numbers& n, const std::string& layer, const std::string& adapter, std::size_t first, double scale) {
  auto& w = n.at(layer + ".weight");
  const auto &a = n.at(adapter + ".lora_A.weight"), &b = n.at(adapter + ".lora_B.weight");
  const std::size_t in = 4, rank = a.size() / in, rows = b.size() / rank;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < in; ++i)
      for (std::size_t k = 0; k < rank; ++k) w[(first + row) * in + i] += scale * b[row * rank + k] * a[k * in + i];
}

/// Norms of rows that the first call computes and later calls repeat: constants in the backward pass.
class ConstantNorms {
 public:
  /// Multiplies each row of w, from `first` on, by m / its norm.
  void apply(Numbers& n, const std::string& layer, const std::string& adapter, std::size_t first) {
    auto& w = n.at(layer + ".weight");
    const auto& m = n.at(adapter + ".lora_magnitude.weight");
    const std::size_t in = 4;
    const bool is_new = !norms_.contains(adapter);
    auto& norms = norms_[adapter];
    for (std::size_t row = 0; row < m.size(); ++row) {
      double square = 0;
      for (std::size_t i = 0; i < in; ++i) square += std::pow(w[(first + row) * in + i], 2);
      if (is_new) norms.push_back(std::sqrt(square));
      for (std::size_t i = 0; i < in; ++i) w[(first + row) * in + i] *= m[row] / norms[row];
    }
  }

 private:
  std::map<std::string, std::vector<double>> norms_;
};

class AdapterTest : public LayerTest {};

TEST_F(AdapterTest, OfANetworkActAsTheWeightThatTheyStandFor) {
  constexpr std::size_t hidden = 4, inner = 4;
  for (const bool gate : {false, true})
    for (const int form : {0, 1, 2, 3}) {
      const bool parts = form % 2 == 1, magnitudes = form > 1;
      SCOPED_TRACE(
          text(gate ? "gated" : "not gated", parts ? ", in parts" : "", magnitudes ? ", with magnitudes" : ""));
      const LayerMaker maker({}, std::make_shared<const EveryLayer>(parts, magnitudes));
      ConstantNorms norms;
      const auto layer = make_feed_forward(gate ? FeedForwardKind::swiglu : FeedForwardKind::silu, "mlp",
                                           {.hidden = hidden, .inner = inner, .has_bias = true}, maker);
      const auto expected = [&](Numbers n) {
        const auto width = gate ? 2 * inner : inner;
        const auto adapt = [&](const std::string& linear, const std::string& adapter, std::size_t first, double scale) {
          merge(n, linear, adapter, first, scale);
          if (magnitudes) norms.apply(n, linear, adapter, first);
        };
        if (gate && parts) {
          adapt("mlp.linear_fc1", "mlp.linear_fc1.gate_proj", 0, 0.75);
          adapt("mlp.linear_fc1", "mlp.linear_fc1.up_proj", inner, 0.75);
        } else {
          adapt("mlp.linear_fc1", "mlp.linear_fc1", 0, 1.5);
        }
        adapt("mlp.linear_fc2", "mlp.linear_fc2", 0, 1.5);
        const auto h = linear_of(n, "mlp.linear_fc1", n.at("x"), width);
        std::vector<double> acted;
        for (std::size_t row = 0; row < h.size() / width; ++row)
          for (std::size_t i = 0; i < inner; ++i) {
            const auto one = h[row * width + i];
            acted.push_back(one / (1 + std::exp(-one)) * (gate ? h[row * width + inner + i] : 1));
          }
        return linear_of(n, "mlp.linear_fc2", acted, hidden);
      };
      check(
          *layer, {2, 3, hidden}, [&](autograd::Tape&, const autograd::Var& x) { return layer->forward(x, Pass{}); },
          expected);
    }
}

TEST(RowNorms, AreComputedAgainWhenAWeightOrAFactorIsAnother) {
  kernels::Threads threads(2);
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  std::mt19937 random(3);
  const auto numbers = [&](std::int64_t count) {
    const auto all = drawn(count, random, 1);
    return std::vector<float>(all.begin(), all.end());
  };
  constexpr std::int64_t rows = 5, in = 4, rank = 2;
  auto w = numbers(rows * in), a = numbers(rank * in), b = numbers(rows * rank), other = numbers(rows * in);
  autograd::Leaf w_leaf, a_leaf, b_leaf;
  w_leaf.value = Tensor(std::span(w), {rows, in});
  a_leaf.value = Tensor(std::span(a), {rank, in});
  b_leaf.value = Tensor(std::span(b), {rows, rank});
  const std::vector<kernels::RowBlock> blocks = {{0, 0, rows}};
  const autograd::LowRankFactors factors{&a_leaf, &b_leaf, 0.5, blocks};
  const RowNorms norms(w_leaf, {});
  const auto is_right = [&](const char* what) {
    const auto memory = norms.norms(tape, {&factors, 1}, nullptr);
    for (std::int64_t row = 0; row < rows; ++row) {
      double square = 0;
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = w_leaf.value.floats()[static_cast<std::size_t>(row * in + i)];
        for (std::int64_t k = 0; k < rank; ++k)
          sum += 0.5 * b[static_cast<std::size_t>(row * rank + k)] * a[static_cast<std::size_t>(k * in + i)];
        square += sum * sum;
      }
      EXPECT_NEAR(autograd::Tape::floats(memory)[static_cast<std::size_t>(row)], std::sqrt(square), 1e-5)
          << what << row;
    }
  };
  is_right("first ");
  is_right("remembered ");
  // Two ranks with the same columns twice.
  const RowNorms twice(w_leaf, [](const parallel::ProcessGroups*, std::span<double> squares) {
    for (auto& square : squares) square *= 2;
  });
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto one = norms.norms(tape, {&factors, 1}, nullptr), both = twice.norms(tape, {&factors, 1}, nullptr);
    for (std::size_t row = 0; row < rows; ++row)
      EXPECT_FLOAT_EQ(autograd::Tape::floats(both)[row], std::sqrt(2.0F) * autograd::Tape::floats(one)[row]);
  }
  a[3] += 1;
  is_right("another a, row ");
  b[9] -= 2;
  is_right("another b, row ");
  w[0] += 1;
  is_right("another w, row ");
  w_leaf.value = Tensor(std::span(other), {rows, in});
  is_right("w elsewhere, row ");
  std::vector<float> gradient(w.size());
  w_leaf.bind_grad(Tensor(std::span(gradient), {rows, in}));
  other[9] += 1;  // a row in the middle of a trained weight
  is_right("a trained w, row ");
}

TEST(Adapters, WithMagnitudesAreMergedIntoTheWeight) {
  const LayerMaker maker({}, std::make_shared<const EveryLayer>(false, true));
  const auto layer = maker.column_parallel("layer", {.in = 4, .out = 5}, {});
  std::mt19937 random(5);
  const FlatParameters layout(layer->parameters());
  std::vector<float> values(static_cast<std::size_t>(layout.elements())), gradients(values.size());
  bind_parameters(layout, values, gradients);
  Numbers merged;
  for (const auto& range : layout.ranges()) {
    auto& own = merged[range.parameter->name];
    own = drawn(range.count, random, 0.5);
    std::copy(own.begin(), own.end(), values.begin() + range.first);
  }
  merge(merged, "layer", "layer", 0, 1.5);
  ConstantNorms().apply(merged, "layer", "layer", 0);
  kernels::Threads threads(1);
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  const auto w = layer->merged_weight(tape);
  const auto& expected = merged.at("layer.weight");
  ASSERT_EQ(w.floats().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(w.floats()[i], expected[i], 1e-5) << i;
}

TEST(Adapters, OfAProjectionBelongToTheRowsOfTheirHeads) {
  const LayerMaker maker({}, std::make_shared<const EveryLayer>(true));
  AttentionSizes s;
  s.hidden = 6, s.heads = 4, s.groups = 2, s.channels = 3;
  SelfAttention layer("attention", 0, s, nullptr, maker);
  std::map<std::string, Shape> shapes;
  for (const auto* parameter : layer.parameters()) shapes[parameter->name] = parameter->shape();
  EXPECT_EQ(shapes.at("attention.linear_qkv.q_proj.lora_A.weight"), (Shape{2, 6}));
  EXPECT_EQ(shapes.at("attention.linear_qkv.q_proj.lora_B.weight"), (Shape{12, 2}));
  EXPECT_EQ(shapes.at("attention.linear_qkv.k_proj.lora_B.weight"), (Shape{6, 3}));
  EXPECT_EQ(shapes.at("attention.linear_qkv.v_proj.lora_B.weight"), (Shape{6, 4}));
  EXPECT_EQ(shapes.at("attention.linear_proj.lora_A.weight"), (Shape{3, 12}));
}

/// The parts of `parameter` that the ranks own are the whole, each element once.
void expect_owned_once(const std::vector<Adapters*>& ranks, const std::string& name) {
  std::map<std::int64_t, int> owners;
  Shape whole;
  for (auto* rank : ranks)
    for (auto* parameter : rank->parameters()) {
      if (parameter->name != name) continue;
      whole = parameter->global_shape;
      if (parameter->cut.strips.empty() && rank != ranks.front()) continue;  // a copy: see Model::share_copies
      const auto owned = parameter->owned();
      std::int64_t here = 0;
      for (const auto& range : global_ranges_of(*parameter))
        for (std::int64_t i = 0; i < range.count; ++i, ++here)
          for (const auto& mine : owned)
            if (here >= mine.first && here < mine.first + mine.count) ++owners[range.first + i];
    }
  EXPECT_EQ(static_cast<std::int64_t>(owners.size()), whole.elements()) << name;
  for (const auto& [element, count] : owners) EXPECT_EQ(count, 1) << name << " element " << element;
}

TEST(Adapters, OfShardedLayersAreSharded) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int repeat = 0; repeat < 50; ++repeat) {
    // A column-parallel layer of `ranks` ranks, whose rows alternate between two parts; the last row of each rank's
    // second block is also the copy of another rank's, as key and value heads are.
    const std::int64_t ranks = draw(1, 4), blocks = ranks * draw(1, 3), rows = draw(1, 3), in = ranks * draw(1, 4);
    LinearPart first{"first", {}}, second{"second", {}};
    for (std::int64_t b = 0; b < blocks; ++b) {
      first.rows.push_back({2 * b * rows, rows});
      second.rows.push_back({(2 * b + 1) * rows, rows});
    }
    const auto out = 2 * blocks * rows;
    Parameter w;
    w.global_shape = {out, in};
    std::vector<std::unique_ptr<Adapters>> columns, lines;
    std::vector<Adapters*> of_columns, of_rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const TensorRank tensor{rank, static_cast<int>(ranks)};
      const std::vector<AdapterForm> forms = {{.part = first, .rank = 2, .magnitudes = true},
                                              {.part = second, .rank = 3, .magnitudes = true}};
      columns.push_back(make_adapters("layer", forms, w, tensor.part(0, out, "rows"), {}));
      lines.push_back(make_adapters("layer", {{.rank = 2, .magnitudes = true}}, w, {}, tensor.part(1, in, "columns")));
      of_columns.push_back(columns.back().get()), of_rows.push_back(lines.back().get());
      const auto is_summed = [](const Parameter& p) { return !p.shared.empty(); };
      for (const auto* p : columns.back()->parameters())
        EXPECT_EQ(is_summed(*p), ranks > 1 && p->name.ends_with("lora_A.weight")) << p->name;
      for (const auto* p : lines.back()->parameters())
        EXPECT_EQ(is_summed(*p), ranks > 1 && !p->name.ends_with("lora_A.weight")) << p->name;
    }
    for (const auto* part : {"first.", "second."})
      for (const auto* factor : {"lora_A.weight", "lora_B.weight", "lora_magnitude.weight"})
        expect_owned_once(of_columns, std::string("layer.") + part + factor);
    for (const auto* factor : {"lora_A.weight", "lora_B.weight", "lora_magnitude.weight"})
      expect_owned_once(of_rows, std::string("layer.") + factor);
  }
}

TEST(Adapters, OfExpertsAreSummedOverTheRanksOfTheExpert) {
  const TensorRank tensor{1, 2};
  Parameter w1, w2;
  w1.role = w2.role = ParameterRole::expert;
  w1.global_shape = {6, 4}, w2.global_shape = {4, 6};
  const auto fc1 = make_adapters("e.linear_fc1", {{.rank = 2}}, w1, tensor.part(0, 6, "rows"), {});
  const auto fc2 = make_adapters("e.linear_fc2", {{.rank = 2}}, w2, {}, tensor.part(1, 6, "columns"));
  for (const auto& [adapters, factor] : {std::pair(fc1.get(), "lora_A.weight"), std::pair(fc2.get(), "lora_B.weight")})
    for (const auto* p : adapters->parameters()) {
      EXPECT_EQ(p->role, ParameterRole::expert) << p->name;
      ASSERT_EQ(p->shared.size(), p->name.ends_with(factor) ? 1U : 0U) << p->name;
      EXPECT_TRUE(p->shared.empty() || p->shared[0].with == GradientSharers::expert_tensor) << p->name;
    }
}

TEST(Adapters, OfCopiedRowsAreCopiesWhoseGradientsAreSummed) {
  // Two ranks with a query head each, and copies of the key and value head that both use.
  const LinearPart queries{"q_proj", {{0, 4}}}, keys{"k_proj", {{4, 2}}}, values{"v_proj", {{6, 2}}};
  const std::vector<AdapterForm> forms = {{.part = queries, .rank = 2, .magnitudes = true},
                                          {.part = keys, .rank = 2, .magnitudes = true},
                                          {.part = values, .rank = 2, .magnitudes = true}};
  Parameter w;
  w.global_shape = {8, 3};
  for (int rank = 0; rank < 2; ++rank) {
    const TensorCut cut{0, {{2 * rank, 2, true}, {4, 4, rank == 0, true}}};
    Adapters adapters("layer", forms, w, cut, {}, {});
    for (const auto* p : adapters.parameters()) {
      if (p->name.ends_with("lora_A.weight")) continue;
      const bool copied = p->name.find("q_proj") == std::string::npos;
      EXPECT_EQ(p->shape()[0], 2) << p->name;
      ASSERT_EQ(p->shared.size(), copied ? 1U : 0U) << p->name;
      if (copied) {
        EXPECT_EQ(p->shared[0].with, GradientSharers::head_copies);
        EXPECT_EQ(p->shared[0].elements.count, p->elements());
        EXPECT_EQ(p->owned().empty(), rank == 1);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::nn
