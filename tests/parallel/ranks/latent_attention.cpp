// Multi-latent attention whose heads are divided over a group gives what the plain one gives: values and gradients.
#include "framework/nn/latent_attention.h"

#include "tests/parallel/ranks/cut.h"

namespace tessera::parallel {
namespace {

constexpr std::int64_t B = 2, T = 8, hidden = 16;
const Shape x_shape{B, T, hidden};

nn::LatentAttentionSizes sizes(bool compresses_queries) {
  nn::LatentAttentionSizes s;
  s.hidden = hidden;
  s.heads = {.heads = 8, .plain = 4, .rotary = 2, .value = 3};
  if (compresses_queries) s.query_rank = 24;
  s.key_value_rank = 14;
  s.out_bias = true;
  s.dropout = 0.3;
  s.init = s.out_init = nn::Init::normal(0.5);
  s.scale = 0.4;
  s.norm = nn::NormKind{nn::Normalization::rms_norm};
  return s;
}

struct CausalPass {
  explicit CausalPass(const ProcessGroups& groups) {
    for (int i = 0; i < B * T; ++i) last.push_back(i % static_cast<int>(T));
    pass.B = B;
    pass.T = pass.S = T;
    pass.positions = last;
    pass.visible.first = first;
    pass.visible.last = last;
    pass.sample_ids = ids;
    pass.seed = 3;
    pass.training = true;
    pass.groups = &groups;
  }
  std::vector<std::int32_t> first = std::vector<std::int32_t>(B * T, 0), last;
  std::vector<std::int64_t> ids = {4, 9};
  nn::Pass pass;
};

/// How the backward pass gets what it needs.
struct Recomputes {
  bool core, up;
};

void compare(int members, bool sequence, bool compresses_queries, const Recomputes& recomputes) {
  const auto groups = initialize_model_parallel(world(), members);
  const CausalPass causal(groups);
  const auto& pass = causal.pass;
  const nn::RotaryEmbedding rotary(2, 10000, kernels::RotaryLayout::interleaved, T, {});
  Bench<nn::LatentAttention> whole("attention", 1, sizes(compresses_queries), &rotary, nn::whole_layers());
  const TensorParallelLayers maker(groups.tensor_rank(sequence));
  auto own_sizes = sizes(compresses_queries);
  own_sizes.recomputed = recomputes.core;
  own_sizes.recomputes_up = recomputes.up;
  Bench<nn::LatentAttention> part("attention", 1, own_sizes, &rotary, maker);
  const bool cuts = sequence && members > 1;
  const auto mine = [&](const std::vector<float>& all) {
    return cuts ? part_of(all, x_shape, 1, groups.tensor.rank(), members) : all;
  };
  auto values = made(x_shape.elements(), 1), slope = made(x_shape.elements(), 2), values_here = mine(values);
  const auto x = whole.work.input(values, x_shape);
  const auto x_here = part.work.input(values_here, {B, cuts ? T / members : T, hidden});
  const auto y = whole.layer.forward(x, pass), y_here = part.layer.forward(x_here, pass);
  expect_near(values_of(y_here), mine(values_of(y)), "y");
  const auto dx = whole.work.backward(y, slope, x);
  expect_near(part.work.backward(y_here, mine(slope), x_here), mine(dx), "dx");
  if (cuts)  // parameters that every rank has whole: each saw its own tokens
    for (const auto& run : part.weights.layout().ranges())
      if (run.parameter->cut.strips.empty()) groups.tensor.all_reduce(part.weights.grad(run), "replicated parameter");
  part.weights.expect_part_of(whole.weights);
}

TEST(LatentAttention, OverTheHeadsOfAGroupGivesThePlainOne) {
  for (const int members : {1, 2, 4, 8})
    for (const bool sequence : {false, true})
      for (const bool compresses_queries : {false, true}) {
        SCOPED_TRACE(text(members, " ranks, sequence ", sequence, ", q_lora_rank ", compresses_queries));
        compare(members, sequence, compresses_queries, {});
      }
}

TEST(LatentAttention, RecomputedOverAGroupGivesThePlainOne) {
  for (const bool sequence : {false, true})
    for (const bool compresses_queries : {false, true})
      for (const auto& recomputes : {Recomputes{true, false}, Recomputes{false, true}, Recomputes{true, true}}) {
        SCOPED_TRACE(text("sequence ", sequence, ", q_lora_rank ", compresses_queries, ", core ", recomputes.core,
                          ", up-projections ", recomputes.up));
        compare(4, sequence, compresses_queries, recomputes);
      }
}

}  // namespace
}  // namespace tessera::parallel
