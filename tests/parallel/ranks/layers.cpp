// Layers that are cut over a group give what the plain ones give: values and gradients.
#include "framework/autograd/ops/embedding.h"
#include "framework/nn/attention_layer.h"
#include "framework/parallel/tensor_parallel_ops.h"
#include "framework/parallel/vocab_parallel.h"
#include "tests/parallel/ranks/cut.h"
#include "tests/story.h"

namespace tessera::parallel {
namespace {

constexpr std::int64_t B = 2, T = 8, in = 16, out = 24;
const nn::Init drawn = nn::Init::normal(0.5);

struct WholeLinear : nn::Module {
  WholeLinear(const std::string& name, const nn::LinearSizes& sizes)
      : nn::Module(""), linear(nn::whole_layers().column_parallel(name, sizes, {})) {
    contains(*linear);
  }
  std::unique_ptr<nn::ActivatedLinearLayer> linear;
};

class OnGroupsOf : public testing::TestWithParam<int> {
 protected:
  nn::TensorRank cut(bool sequence = false) const { return groups.tensor_rank(sequence); }
  nn::Pass pass() const {
    nn::Pass pass;
    pass.B = B;
    pass.T = pass.S = T;
    pass.groups = &groups;
    return pass;
  }
  std::vector<float> my_part(const std::vector<float>& whole, const Shape& shape, std::size_t dim) const {
    return part_of(whole, shape, dim, groups.tensor.rank(), groups.tensor.size());
  }
  const int members = GetParam();
  const ProcessGroups groups = initialize_model_parallel(world(), members);
};

const nn::LinearSizes linear_sizes{.in = in, .out = out, .has_bias = true, .init = drawn};
const Shape x_shape{B, T, in}, y_shape{B, T, out};

TEST_P(OnGroupsOf, AColumnParallelLinearGivesItsColumnsOfThePlainOne) {
  for (const bool gathers : {false, true}) {
    for (const bool activated : {false, true}) {
      Bench<WholeLinear> whole("linear", linear_sizes);
      Bench<ColumnParallelLinear> part("linear", linear_sizes, cut(), gathers);
      auto values = made(x_shape.elements(), 1), slope = made(y_shape.elements(), 2);
      const auto forward = [&](const nn::ActivatedLinearLayer& layer, const autograd::Var& x) {
        return activated ? layer.forward(x, kernels::Activation::gelu_tanh, pass()) : layer.forward(x, pass());
      };
      const auto x = whole.work.input(values, x_shape), x_here = part.work.input(values, x_shape);
      const auto y = forward(*whole.layer.linear, x), y_here = forward(part.layer, x_here);
      expect_near(values_of(y_here), gathers ? values_of(y) : my_part(values_of(y), y_shape, 2), "y");
      const auto dx = whole.work.backward(y, slope, x);
      expect_near(part.work.backward(y_here, gathers ? slope : my_part(slope, y_shape, 2), x_here), dx, "dx");
      part.weights.expect_part_of(whole.weights);
    }
  }
}

TEST_P(OnGroupsOf, ARowParallelLinearGivesThePlainOne) {
  for (const bool parallel_input : {false, true}) {
    Bench<WholeLinear> whole("linear", linear_sizes);
    Bench<RowParallelLinear> part("linear", linear_sizes, cut(), parallel_input);
    auto values = made(x_shape.elements(), 1), slope = made(y_shape.elements(), 2);
    auto values_here = parallel_input ? my_part(values, x_shape, 2) : values;
    const auto x = whole.work.input(values, x_shape);
    const auto x_here = part.work.input(values_here, parallel_input ? x_shape.with_width(in / members) : x_shape);
    const auto y = whole.layer.linear->forward(x, pass()), y_here = part.layer.forward(x_here, pass());
    expect_near(values_of(y_here), values_of(y), "y");
    const auto dx = whole.work.backward(y, slope, x);
    expect_near(part.work.backward(y_here, slope, x_here), parallel_input ? my_part(dx, x_shape, 2) : dx, "dx");
    part.weights.expect_part_of(whole.weights);
  }
}

/// The pair that a feed-forward is: columns, an activation, rows.
struct Pair : nn::Module {
  explicit Pair(const nn::LayerMaker& maker) : nn::Module("") {
    up = maker.column_parallel("up", {.in = in, .out = out, .has_bias = true, .init = drawn},
                               maker.tensor().part(0, out, "rows"));
    down = maker.row_parallel("down", {.in = out, .out = in, .has_bias = true, .init = drawn});
    contains(*up);
    contains(*down);
  }
  autograd::Var forward(const autograd::Var& x, const nn::Pass& pass) const {
    return down->forward(up->forward(x, kernels::Activation::gelu_tanh, pass), pass);
  }
  std::unique_ptr<nn::ActivatedLinearLayer> up;
  std::unique_ptr<nn::LinearLayer> down;
};

TEST_P(OnGroupsOf, APairOfLayersWithTheSequenceCutGivesItsTokensOfThePlainOne) {
  Bench<Pair> whole(nn::whole_layers());
  const TensorParallelLayers maker(cut(true));
  Bench<Pair> part(maker);
  auto values = made(x_shape.elements(), 1), slope = made(x_shape.elements(), 2);
  auto values_here = my_part(values, x_shape, 1);
  const auto x = whole.work.input(values, x_shape), x_here = part.work.input(values_here, {B, T / members, in});
  const auto y = whole.layer.forward(x, pass()), y_here = part.layer.forward(x_here, pass());
  expect_near(values_of(y_here), my_part(values_of(y), x_shape, 1), "y");
  const auto dx = whole.work.backward(y, slope, x);
  expect_near(part.work.backward(y_here, my_part(slope, x_shape, 1), x_here), my_part(dx, x_shape, 1), "dx");
  for (const auto& run : part.weights.layout().ranges())  // each saw its own tokens
    if (run.parameter->name == "down.bias") groups.tensor.all_reduce(part.weights.grad(run), "bias");
  part.weights.expect_part_of(whole.weights);
}

TEST_P(OnGroupsOf, AGatheredLinearGivesItsOutputsOfThePlainOne) {
  for (const bool sequence : {false, true})
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, out}) {
      Bench<std::unique_ptr<nn::GatheredLinear>> whole(nn::whole_layers().gathered("linear", linear_sizes));
      Bench<std::unique_ptr<nn::GatheredLinear>> part(
          TensorParallelLayers(cut(sequence)).gathered("linear", linear_sizes));
      const bool cuts = sequence && members > 1;
      const auto mine = [&](const std::vector<float>& all, const Shape& shape) {
        return cuts ? my_part(all, shape, 1) : all;
      };
      auto values = made(x_shape.elements(), 1), values_here = mine(values, x_shape);
      const auto x = whole.work.input(values, x_shape);
      const auto x_here = part.work.input(values_here, {B, cuts ? T / members : T, in});
      const auto y = whole.layer->forward(x, first, pass()), y_here = part.layer->forward(x_here, first, pass());
      EXPECT_EQ(y_here.all.empty(), first == out);
      const Shape own{B, T, first}, all{B, T, out - first};
      if (first > 0) expect_near(values_of(y_here.own), mine(values_of(y.own), own), "own");
      if (first < out) expect_near(values_of(y_here.all), values_of(y.all), "all");
      if (first > 0) {
        const auto slope = made(own.elements(), 2);
        whole.work.seed(y.own, slope);
        part.work.seed(y_here.own, mine(slope, own));
      }
      if (first < out) {  // each rank has a summand
        std::vector<float> sum(static_cast<std::size_t>(all.elements()));
        for (int rank = 0; rank < members; ++rank) {
          const auto slope = made(all.elements(), 10 + rank);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += slope[i];
          if (rank == groups.tensor.rank()) part.work.seed(y_here.all, slope);
        }
        whole.work.seed(y.all, sum);
      }
      expect_near(part.work.backward(x_here), mine(whole.work.backward(x), x_shape), "dx");
      part.weights.expect_part_of(whole.weights);
    }
}

struct WholeTable : nn::Module {
  WholeTable(std::int64_t rows, std::int64_t width)
      : nn::Module("table"), weight(declare("weight", ParameterRole::word_embedding, {rows, width}, drawn)) {}
  nn::Parameter& weight;
};

TEST_P(OnGroupsOf, AVocabParallelEmbeddingGivesThePlainOne) {
  constexpr std::int64_t rows = 32;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < B * T; ++i) tokens.push_back(i * 13 % static_cast<int>(rows));
  for (const bool sequence : {false, true}) {
    Bench<WholeTable> whole(rows, in);
    Bench<VocabParallelEmbedding> part("table", rows, in, drawn, cut(sequence));
    auto slope = made(x_shape.elements(), 3);
    const auto y = autograd::embedding(whole.work.tape, {B, T}, tokens, whole.layer.weight.leaf, {}, nullptr);
    const auto y_here = part.layer.forward(part.work.tape, tokens, pass());
    const bool cuts = sequence && members > 1;
    EXPECT_EQ(values_of(y_here), cuts ? my_part(values_of(y), x_shape, 1) : values_of(y));
    whole.work.backward(y, slope);
    part.work.backward(y_here, cuts ? my_part(slope, x_shape, 1) : slope);
    part.weights.expect_part_of(whole.weights);
  }
}

TEST_P(OnGroupsOf, AVocabularyThatDoesNotDivideIsRefused) {
  if (members == 1) return;
  EXPECT_TRUE(
      says(story_of([&] { VocabParallelEmbedding("table", 33, in, drawn, cut()); }), "33 rows of an embedding"));
}

/// Losses of rows of V logits, and their gradients when those of the losses are `slope`, in double.
struct PlainCrossEntropy {
  PlainCrossEntropy(const std::vector<float>& logits, const std::vector<std::int32_t>& labels,
                    const std::vector<float>& slope, double label_smoothing)
      : loss(labels.size()), dlogits(logits.size()) {
    const auto V = logits.size() / labels.size();
    const double all = static_cast<double>(V), share = label_smoothing * all / (all - 1);
    for (std::size_t r = 0; r < labels.size(); ++r) {
      if (labels[r] < 0) continue;
      const float* row = logits.data() + r * V;
      const double most = static_cast<double>(*std::max_element(row, row + V));
      double sum = 0, total = 0;
      for (std::size_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(row[v]) - most);
      const double log_sum = std::log(sum) + most;
      for (std::size_t v = 0; v < V; ++v) {
        const double target = share / all + (static_cast<int>(v) == labels[r] ? 1 - share : 0);
        total += target * (log_sum - static_cast<double>(row[v]));
        dlogits[r * V + v] = static_cast<float>(static_cast<double>(slope[r]) *
                                                (std::exp(static_cast<double>(row[v]) - log_sum) - target));
      }
      loss[r] = static_cast<float>(total);
    }
  }
  std::vector<float> loss, dlogits;
};

TEST_P(OnGroupsOf, VocabParallelCrossEntropyGivesThePlainOneInDouble) {
  constexpr std::int64_t V = 40;
  const Shape shape{B, T, V};
  auto values = made(shape.elements(), 5);
  for (auto& value : values) value *= 30;  // e^30 is not a number to add carelessly
  const auto slope = made(B * T, 6);
  std::vector<std::int32_t> labels;
  for (int i = 0; i < B * T; ++i) labels.push_back(i * 7 % static_cast<int>(V));
  labels[3] = -1;
  for (const double smoothing : {0.0, 0.1}) {
    const PlainCrossEntropy plain(values, labels, slope, smoothing);
    Work work;
    auto here = my_part(values, shape, 2);
    const auto logits = work.input(here, {B, T, V / members});
    const auto y = vocab_parallel_cross_entropy(logits, labels, groups.tensor, smoothing);
    EXPECT_EQ(y.shape(), Shape({B, T}));
    expect_near(values_of(y), plain.loss, "loss");
    expect_near(work.backward(y, slope, logits), my_part(plain.dlogits, shape, 2), "dlogits");
    EXPECT_EQ(values_of(logits), my_part(values, shape, 2)) << "the logits were changed";
  }
}

TEST_P(OnGroupsOf, VocabParallelCrossEntropyWantsALabelForEachRow) {
  Work work;
  auto values = made(12, 1);
  const auto logits = work.input(values, {1, 3, 4});
  const std::vector<std::int32_t> labels = {1, 2};
  EXPECT_TRUE(says(story_of([&] { vocab_parallel_cross_entropy(logits, labels, groups.tensor); }), "2 labels"));
  const std::vector<std::int32_t> three = {1, 2, 3};
  EXPECT_THROW(vocab_parallel_cross_entropy(logits, three, groups.tensor, 1), ConfigError);
}

INSTANTIATE_TEST_SUITE_P(Members, OnGroupsOf, testing::Values(1, 2, 4, 8));

// Attention with 8 heads in 2 groups: on 4 and 8 processes each key and value head has copies.

nn::AttentionSizes grouped_heads() {
  nn::AttentionSizes sizes;
  sizes.hidden = in;
  sizes.heads = 8;
  sizes.groups = 2;
  sizes.channels = 4;
  sizes.qkv_bias = sizes.out_bias = true;
  sizes.init = sizes.out_init = drawn;
  sizes.scale = 0.5;
  sizes.head_norm = nn::NormKind{nn::Normalization::rms_norm};
  return sizes;
}

nn::Pass causal_pass(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) {
  static const std::vector<std::int64_t> ids = {0, 1};
  nn::Pass pass;
  pass.B = B;
  pass.T = pass.S = T;
  pass.visible.first = from;
  pass.visible.last = to;
  pass.sample_ids = ids;
  return pass;
}

class GroupedHeads : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Norms, GroupedHeads, testing::Bool());

TEST_P(GroupedHeads, OnMoreProcessesThanGroupsAttentionGivesThePlainOne) {
  auto sizes = grouped_heads();
  sizes.norms_all_heads = GetParam();
  std::vector<std::int32_t> from(B * T, 0), to;
  for (int i = 0; i < B * T; ++i) to.push_back(i % static_cast<int>(T));
  auto pass = causal_pass(from, to);
  for (const int members : {2, 4, 8})
    for (const bool sequence : {false, true}) {
      const auto groups = initialize_model_parallel(world(), members, 1, 2);
      pass.groups = &groups;
      EXPECT_EQ(groups.head_copies.size(), members / 2);
      Bench<nn::SelfAttention> whole("attention", 0, sizes, nullptr, nn::whole_layers());
      const TensorParallelLayers maker(groups.tensor_rank(sequence));
      Bench<nn::SelfAttention> part("attention", 0, sizes, nullptr, maker);
      const auto mine = [&](const std::vector<float>& all) {
        return sequence ? part_of(all, x_shape, 1, groups.tensor.rank(), members) : all;
      };
      auto values = made(x_shape.elements(), 1), slope = made(x_shape.elements(), 2), values_here = mine(values);
      const auto x = whole.work.input(values, x_shape);
      const auto x_here = part.work.input(values_here, {B, sequence ? T / members : T, in});
      const auto y = whole.layer.forward(x, pass), y_here = part.layer.forward(x_here, pass);
      expect_near(values_of(y_here), mine(values_of(y)), "y");
      const auto dx = whole.work.backward(y, slope, x);
      expect_near(part.work.backward(y_here, mine(slope), x_here), mine(dx), "dx");
      sum_shared(part.weights, groups);
      for (const auto& run : part.weights.layout().ranges())
        if (sequence && run.parameter->name == "attention.linear_proj.bias")
          groups.tensor.all_reduce(part.weights.grad(run), "bias");
      part.weights.expect_part_of(whole.weights);
    }
}

}  // namespace
}  // namespace tessera::parallel
