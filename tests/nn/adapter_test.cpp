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
  explicit EveryLayer(bool parts) : parts_(parts) {}
  std::vector<AdapterForm> adapters_of(const std::string&, std::int64_t,
                                       std::span<const LinearPart> parts) const override {
    std::vector<AdapterForm> all;
    if (parts_)
      for (const auto& part : parts)
        all.push_back({.part = part, .rank = 2 + static_cast<std::int64_t>(all.size()), .scale = 0.75});
    if (all.empty()) all.push_back({.rank = 3, .scale = 1.5});
    return all;
  }

 private:
  bool parts_;
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

class AdapterTest : public LayerTest {};

TEST_F(AdapterTest, OfANetworkActAsTheWeightThatTheyStandFor) {
  constexpr std::size_t hidden = 4, inner = 4;
  for (const bool gate : {false, true})
    for (const bool parts : {false, true}) {
      SCOPED_TRACE(text(gate ? "gated" : "not gated", parts ? ", in parts" : ""));
      const LayerMaker maker({}, std::make_shared<const EveryLayer>(parts));
      const auto layer = make_feed_forward(gate ? FeedForwardKind::swiglu : FeedForwardKind::silu, "mlp",
                                           {.hidden = hidden, .inner = inner, .has_bias = true}, maker);
      const auto expected = [&](Numbers n) {
        const auto width = gate ? 2 * inner : inner;
        if (gate && parts) {
          merge(n, "mlp.linear_fc1", "mlp.linear_fc1.gate_proj", 0, 0.75);
          merge(n, "mlp.linear_fc1", "mlp.linear_fc1.up_proj", inner, 0.75);
        } else {
          merge(n, "mlp.linear_fc1", "mlp.linear_fc1", 0, 1.5);
        }
        merge(n, "mlp.linear_fc2", "mlp.linear_fc2", 0, 1.5);
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
      for (const auto& range : contiguous_ranges_of(*parameter))
        for (std::int64_t i = 0; i < range.count; ++i)
          for (const auto& mine : owned)
            if (range.first + i >= mine.first && range.first + i < mine.first + mine.count)
              ++owners[range.global_first + i];
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
    std::vector<std::unique_ptr<Adapters>> columns, lines;
    std::vector<Adapters*> of_columns, of_rows;
    for (int rank = 0; rank < ranks; ++rank) {
      const TensorRank tensor{rank, static_cast<int>(ranks)};
      const std::vector<AdapterForm> forms = {{.part = first, .rank = 2}, {.part = second, .rank = 3}};
      columns.push_back(make_adapters("layer", forms, in, out, tensor.part(0, out, "rows"), {}));
      lines.push_back(make_adapters("layer", {{.rank = 2}}, in, out, {}, tensor.part(1, in, "columns")));
      of_columns.push_back(columns.back().get()), of_rows.push_back(lines.back().get());
      const auto is_summed = [](const Parameter& p) { return !p.shared.empty(); };
      for (const auto* p : columns.back()->parameters())
        EXPECT_EQ(is_summed(*p), ranks > 1 && p->name.ends_with("lora_A.weight")) << p->name;
      for (const auto* p : lines.back()->parameters())
        EXPECT_EQ(is_summed(*p), ranks > 1 && p->name.ends_with("lora_B.weight")) << p->name;
    }
    for (const auto* part : {"first.", "second."})
      for (const auto* factor : {"lora_A.weight", "lora_B.weight"})
        expect_owned_once(of_columns, std::string("layer.") + part + factor);
    for (const auto* factor : {"lora_A.weight", "lora_B.weight"})
      expect_owned_once(of_rows, std::string("layer.") + factor);
  }
}

TEST(Adapters, OfExpertsAreSummedOverTheRanksOfTheExpert) {
  const TensorRank tensor{1, 2};
  const auto fc1 =
      make_adapters("e.linear_fc1", {{.rank = 2}}, 4, 6, tensor.part(0, 6, "rows"), {}, ParameterRole::expert);
  const auto fc2 =
      make_adapters("e.linear_fc2", {{.rank = 2}}, 6, 4, {}, tensor.part(1, 6, "columns"), ParameterRole::expert);
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
  const std::vector<AdapterForm> forms = {
      {.part = queries, .rank = 2}, {.part = keys, .rank = 2}, {.part = values, .rank = 2}};
  for (int rank = 0; rank < 2; ++rank) {
    const TensorCut cut{0, {{2 * rank, 2, true}, {4, 4, rank == 0, true}}};
    Adapters adapters("layer", forms, 3, 8, cut, {});
    for (const auto* p : adapters.parameters()) {
      if (!p->name.ends_with("lora_B.weight")) continue;
      const bool copied = p->name.find("q_proj") == std::string::npos;
      EXPECT_EQ(p->shape(), (Shape{2, 2})) << p->name;
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
