// What holds for every model that the options can say: small recipes drawn at random.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/drawn_seed.h"
#include "tests/model/built.h"
#include "tests/sanitized.h"

namespace tessera::model {
namespace {

unsigned seed() { return drawn_seed(20240607); }

/// Recipes of small models, one after the other.
class Recipes {
 public:
  explicit Recipes(unsigned which) : random_(seed() + which) {}

  struct Wanted {
    bool dropout = false, looks_right = true, recomputes = false;
    bool bounded = true;  ///< gates may have bounds, at which the loss has no derivative
  };

  std::string next(const Wanted& wanted) {
    words_ = "init_method_std:" + one({"0.1", "0.3", "0.5"});
    sizes();
    positions();
    attention(wanted);
    norms();
    feed_forward(wanted);
    for (const auto* bias : {"qkv_has_bias", "out_proj_has_bias", "mlp_has_bias", "add_bias_linear"}) flip(bias);
    flip("untie_embeddings_and_output_weights");
    flip("output_layer_has_bias");
    if (sometimes(4)) say("output_logit_softcap", one({"0.8", "5"}));
    say("hidden_dropout_rate", wanted.dropout && sometimes(2) ? "0.2" : "0");
    if (wanted.dropout && sometimes(3)) say("embedding_dropout_rate", one({"0", "0.3"}));
    say("attention_dropout_rate", wanted.dropout && sometimes(2) ? "0.2" : "0");
    if (wanted.recomputes) recomputation();
    return words_;
  }

 private:
  bool sometimes(unsigned of) { return random_() % of == 0; }
  std::string one(const std::vector<std::string>& from) { return from[random_() % from.size()]; }
  void say(const std::string& key, const std::string& value) { words_ += " " + key + ":" + value; }
  void flip(const std::string& key) { say(key, one({"true", "false"})); }

  void sizes() {
    say("num_layers", one({"1", "2", "3"}));
    const auto hidden = one({"16", "24"}), heads = one({"2", "4"});
    say("hidden_size", hidden);
    say("num_attention_heads", heads);
    channels_ = std::stoi(hidden) / std::stoi(heads);
    if (sometimes(2)) {
      const auto channels = one({"4", "6", "10"});
      say("kv_channels", channels);
      channels_ = std::stoi(channels);
    }
    if (sometimes(2)) {
      say("group_query_attention", "true");
      say("num_query_groups", one({"1", "2"}));
    }
    say("ffn_hidden_size", one({"8", "20", "33"}));
  }
  void positions() {
    const auto type = one({"learned_absolute", "rope", "rope", "alibi", "none"});
    say("position_embedding_type", type);
    if (type != "learned_absolute") flip("scale_embeddings");
    if (type != "learned_absolute" && sometimes(3)) say("embedding_multiplier", "1.7");
    if (type != "learned_absolute" && sometimes(3)) say("embed_layernorm", "true");
    if (type == "alibi") flip("scale_alibi");
    if (type == "alibi") flip("round_alibi");
    if (type == "learned_absolute" && sometimes(2)) say("position_embedding_offset", "2");
    if (type != "rope") return;
    rotates_ = true;
    if (sometimes(4)) say("no_rope_freq", "1");
    say("rotary_base", one({"10000", "100"}));
    say("rotary_percent", one({"1", channels_ % 4 == 0 ? "0.5" : channels_ == 6 ? "0.7" : "0.4"}));  // in pairs
    flip("rotary_interleaved");
    if (sometimes(3)) say("rotary_seq_len_interpolation_factor", "2.5");
    say("rope_scaling_type", one({"none", "llama3", "yarn"}));
    say("rope_scaling_original_max_position_embeddings", one({"6", "12", "40"}));
  }
  void attention(const Wanted& wanted) {
    if (sometimes(2)) {
      say("window_size[0]", one({"0", "2", "5", "100", "-1"}));
      say("window_size[1]", wanted.looks_right ? one({"0", "0", "1", "3"}) : "0");
    } else if (sometimes(2)) {
      say("sliding_window", one({"1", "4"}));
      if (sometimes(2)) {
        say("layer_types[0]", one({"sliding_attention", "full_attention"}));
        say("layer_types[1]", one({"sliding_attention", "full_attention"}));
      }
      if (rotates_ && sometimes(2)) say("rope_local_base_freq", "30");
    }
    flip("qk_layernorm");
    if (sometimes(2)) say("softmax_type", one({"learnable", "off-by-one"}));
    if (sometimes(4)) say("attention_logit_softcap", one({"0.5", "3"}));
    if (sometimes(4)) say("query_pre_attn_scalar", "7.5");
  }
  void norms() {
    const auto kind = one({"LayerNorm", "RMSNorm"});
    say("normalization", kind);
    say("norm_epsilon", "1e-3");
    flip("apply_layernorm_1p");
    if (kind == "RMSNorm" && sometimes(2)) say("qk_layernorm_all_heads", "true");
    const bool sandwich = sometimes(3);
    if (sandwich) {
      say("use_sandwich_norm", "true");
      if (kind == "RMSNorm") say("attn_post_norm_scale", "0.3");
      if (kind == "RMSNorm") say("ffn_post_norm_scale", "0.6");
    }
    flip("use_final_norm");
    if (sometimes(3)) say("residual_multiplier", "0.6");
    if (sometimes(3)) say("output_multiplier", "1.4");
    const auto form = one({"plain", "plain", "parallel", "shared", "after"});
    if (form == "plain" && sandwich) flip("use_pre_norm");
    if (form == "parallel" || form == "shared") say("use_parallel_residual", "true");
    if (form == "shared") say("shared_parallel_norm", "true");
    if (form == "after") say("apply_residual_connection_post_norm", "true");
  }
  void feed_forward(const Wanted& wanted) {
    const auto act = one({"gelu", "gelu_erf", "quick_gelu", "silu", "relu", "squared_relu", "swiglu", "geglu",
                          "geglu_erf", "quick_geglu", "reglu", "squared_reglu"});
    say("hidden_act", act);
    const bool gated = sometimes(4);
    if (gated) say("gated_linear_unit", "true");
    if ((!gated && act.find("glu") == std::string::npos) || sometimes(2)) return;
    if (wanted.bounded) say("activation_func_clamp_value", "0.4");
    say("glu_linear_offset", "0.8");
  }
  void recomputation() {
    if (sometimes(2)) {
      say("recompute_granularity", "full");
      say("recompute_method", one({"uniform", "block"}));
      say("recompute_num_layers", one({"1", "2", "5"}));
      if (words_.find("uniform") == std::string::npos) norms_and_activations();
      return;
    }
    const bool selective = sometimes(2);
    say("recompute_granularity", selective ? "selective" : "none");
    norms_and_activations();
    if (!selective) return;
    const auto modules = one({"usual", "core_attn", "mlp", "layernorm", "all", "both"});
    if (modules == "core_attn" || modules == "mlp" || modules == "layernorm") say("recompute_modules[0]", modules);
    if (modules != "both" && modules != "all") return;
    say("recompute_modules[0]", "mlp");
    say("recompute_modules[1]", "core_attn");
    if (modules == "all") say("recompute_modules[2]", "layernorm");
  }
  void norms_and_activations() {
    for (const std::string what : {"recompute_norm", "recompute_activation_function"}) {
      if (sometimes(3)) continue;
      say(what, "true");
      if (sometimes(2)) say(what + "_num_layers", one({"0", "1"}));
    }
  }

  std::mt19937 random_;
  std::string words_;
  int channels_ = 0;  // of a head
  bool rotates_ = false;
};

ForwardMode training() {
  ForwardMode mode;
  mode.training = true;
  return mode;
}

/// The loss of a batch; its gradient is added to b.grads.
double backward(Built& b, const TokenBatch& batch) {
  autograd::Tape tape(b.arena, b.threads, true);
  const auto sum = b.model->loss(tape, batch, training()).total.sum;
  tape.backward();
  tape.clear();
  EXPECT_EQ(b.arena.in_use(), 0u);
  return sum;
}

void expect_near(std::span<const float> a, std::span<const float> b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double most = 1;
  for (const double v : a) most = std::max(most, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * most) << "element " << i;
}

double loss_of(Built& b, const TokenBatch& batch) {
  autograd::Tape tape(b.arena, b.threads, false);
  return b.model->loss(tape, batch, training()).total.sum;
}

/// How far the loss goes when every weight is moved by up to a unit in its last place: what rounding does to it.
double rounding_of(Built& b, const TokenBatch& batch, std::mt19937& random) {
  const auto loss = loss_of(b, batch);
  const auto before = b.values;
  double most = 1e-7 * loss;
  for (int i = 0; i < 4; ++i) {
    for (auto& v : b.values) v *= 1 + static_cast<float>(static_cast<int>(random() % 3) - 1) * 0x1p-23F;
    most = std::max(most, std::abs(loss_of(b, batch) - loss));
    b.values = before;
  }
  return most;
}

/// How the loss changes along a direction in the elements of one parameter.
class Along {
 public:
  Along(Built& b, const nn::ParameterRange& range, std::mt19937& random)
      : b_(b), first_(static_cast<std::size_t>(range.first)), direction_(static_cast<std::size_t>(range.count)) {
    std::normal_distribution<double> normal;
    double square = 0, most = 0;
    for (std::size_t i = 0; i < direction_.size(); ++i) square += std::pow(b.grads[first_ + i], 2);
    const double usual = std::sqrt(square / static_cast<double>(direction_.size()));
    for (std::size_t i = 0; i < direction_.size(); ++i) {  // mostly uphill, and partly where the claim says flat
      const double g = b.grads[first_ + i];
      direction_[i] = g * (1 + 0.3 * normal(random)) + 0.5 * usual * normal(random);
      claimed_ += g * direction_[i];
      most = std::max(most, std::abs(direction_[i]));
    }
    if (most > 0) step_ = std::min(0.01 / std::max(std::abs(claimed_), 1e-30), 0.01 / most);
  }
  double step() const { return step_; }
  double claimed() const { return claimed_; }
  /// The slope from differences over `step` to both sides.
  double measured(const TokenBatch& batch, double step) {
    return (moved(batch, step) - moved(batch, -step)) / (2 * step);
  }

 private:
  double moved(const TokenBatch& batch, double by) {
    const auto before = b_.values;
    for (std::size_t i = 0; i < direction_.size(); ++i) b_.values[first_ + i] += static_cast<float>(by * direction_[i]);
    const auto sum = loss_of(b_, batch);
    b_.values = before;
    return sum;
  }
  Built& b_;
  std::size_t first_;
  std::vector<double> direction_;
  double claimed_ = 0, step_ = 0;
};

TEST(AnyModel, GradientsAreDifferencesOfTheLoss) {
  Recipes recipes(1);
  std::mt19937 random(seed());
  const Tokens tokens;
  const auto batch = tokens.batch();
  int told = 0, parameters = 0;
  for (int i = 0; i < 150 / part_of_inputs; ++i) {
    const auto words = recipes.next({true, true, true, false});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built b(words);
    backward(b, batch);
    const auto rounding = rounding_of(b, batch, random);
    const auto has = [&](const char* part) { return words.find(part) != std::string::npos; };
    const double corners = has("act:relu") || has("act:reglu") ? 0.15 : 0.02;
    for (const auto& range : b.layout->ranges()) {
      Along along(b, range, random);
      const auto step = along.step();
      if (step == 0) continue;
      // Differences over a step are wrong by its square: over half the step by a quarter. So what they differ in bounds
      // what is left when they are put together. Where an activation has a corner that holds less well.
      const double whole = along.measured(batch, step), half = along.measured(batch, step / 2);
      const double tolerance = 3 * rounding / step + std::abs(whole - half) + corners * std::abs(along.claimed());
      ASSERT_NEAR((4 * half - whole) / 3, along.claimed(), tolerance) << range.parameter->name;
      told += tolerance < 0.2 * std::abs(along.claimed()) ? 1 : 0;
      ++parameters;
    }
  }
  EXPECT_GT(told, parameters * 3 / 4) << "the tolerance hides too much";
}

TEST(AnyModel, InBfloat16IsNearItselfAndRecomputingChangesNoBit) {
  Recipes recipes(7);
  const Tokens tokens;
  const Precision halves = {DType::bfloat16, DType::bfloat16, DType::bfloat16, DType::bfloat16};
  for (int i = 0; i < 60 / part_of_inputs; ++i) {
    const auto words = recipes.next({false, true, true});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built whole(words), again(words, 12, 29, halves),
        half(words.substr(0, words.find(" recompute_granularity")), 12, 29, halves);
    const auto exact = backward(whole, tokens.batch()), rounded = backward(half, tokens.batch());
    // Some ten values of 8 bits stand between a token and its loss.
    EXPECT_NEAR(rounded, exact, 0.05 * exact);
    EXPECT_NE(rounded, exact);
    EXPECT_EQ(backward(again, tokens.batch()), rounded);
    ASSERT_EQ(again.grads, half.grads);
  }
}

TEST(AnyModel, AStaleGradientIsOverwrittenByWhatWouldBeAddedToZeros) {
  Recipes recipes(9);
  const Tokens tokens;
  std::vector<std::string> models;
  for (int i = 0; i < 150 / part_of_inputs; ++i) models.push_back(recipes.next({true, true, true}));
  // 24 tokens choose one of 64 experts each, so that some experts have none.
  for (const std::string kind : {"num_experts:64 moe_router_topk:1 moe_router_pre_softmax:true",
                                 "num_experts:4 moe_shared_expert_intermediate_size:6 mtp_num_layers:1",
                                 "num_experts:4 moe_router_enable_expert_bias:true moe_router_score_function:sigmoid"})
    models.push_back(
        "normalization:RMSNorm hidden_act:swiglu add_bias_linear:false position_embedding_type:rope "
        "ffn_hidden_size:12 moe_ffn_hidden_size:8 " +
        kind);
  for (const auto& words : models) {
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built zeros(words), stale(words);
    std::fill(stale.grads.begin(), stale.grads.end(), std::numeric_limits<float>::quiet_NaN());
    for (const auto& range : stale.layout->ranges()) range.parameter->leaf.make_grad_stale();
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
      EXPECT_EQ(backward(stale, tokens.batch()), backward(zeros, tokens.batch()));
    for (const auto& range : stale.layout->ranges()) {
      const auto now = range.parameter->leaf.grad_to_add_to(stale.threads);  // zeros if no operation wrote it
      const auto expected = nn::FlatParameters::view(range, zeros.grads).floats();
      ASSERT_TRUE(std::equal(now.begin(), now.end(), expected.begin())) << range.parameter->name;
    }
    Built twice(words);
    backward(twice, tokens.batch());
    for (auto& gradient : twice.grads) gradient *= 2;
    expect_near(twice.grads, zeros.grads, 2e-5);  // the second micro-batch is added to the first
  }
}

TEST(AnyModel, RecomputingChangesNoBit) {
  Recipes with(2);
  const Tokens tokens;
  for (int i = 0; i < 150 / part_of_inputs; ++i) {
    const auto words = with.next({true, true, true});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built again(words), kept(words.substr(0, words.find(" recompute_granularity")));
    EXPECT_EQ(backward(again, tokens.batch()), backward(kept, tokens.batch()));
    ASSERT_EQ(again.grads, kept.grads);
  }
}

TEST(AnyModel, PackedDocumentsAreSeparateSequences) {
  Recipes recipes(3);
  Tokens tokens;
  for (std::size_t i = 12; i < 24; ++i)
    tokens.positions[i] = i < 17 ? static_cast<int>(i) - 12 : static_cast<int>(i) - 17;
  for (int i = 0; i < 100 / part_of_inputs; ++i) {
    const auto words = recipes.next({});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built b(words);
    const auto packed = logits_of(b, tokens.batch());
    auto expected = logits_of(b, tokens.part(0, 1, 12));
    for (const auto& more : {logits_of(b, tokens.part(12, 1, 5)), logits_of(b, tokens.part(17, 1, 7))})
      expected.insert(expected.end(), more.begin(), more.end());
    // The same sums, cut into tiles of other sizes: some roundings of the largest logit.
    expect_near(packed, expected, 2e-5);
  }
}

TEST(AnyModel, OneMicroBatchIsTheSumOfItsSamples) {
  Recipes recipes(4);
  Tokens tokens;
  std::fill(tokens.starts.begin(), tokens.starts.end(), 0);
  for (int i = 0; i < 100 / part_of_inputs; ++i) {
    const auto words = recipes.next({true, true, false});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built together(words), apart(words);
    const auto loss = backward(together, tokens.batch());
    const auto sum = backward(apart, tokens.part(0, 1, 12)) + backward(apart, tokens.part(12, 1, 12));
    EXPECT_NEAR(loss, sum, 1e-6 * loss);  // token losses are floats, and sums in double
    expect_near(together.grads, apart.grads, 2e-5);
  }
}

TEST(AnyModel, PaddingOfTheVocabularyChangesNoLogit) {
  Recipes recipes(5);
  const Tokens tokens;
  for (int i = 0; i < 50 / part_of_inputs; ++i) {
    const auto words = recipes.next({});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built bare(words), padded(words, 12, 64);
    const auto a = logits_of(bare, tokens.batch()), b = logits_of(padded, tokens.batch());
    std::vector<float> real;
    for (std::size_t row = 0; row < 24; ++row)
      real.insert(real.end(), b.begin() + static_cast<std::ptrdiff_t>(row * 64),
                  b.begin() + static_cast<std::ptrdiff_t>(row * 64 + 29));
    expect_near(a, real, 2e-5);
  }
}

TEST(AnyModel, GeneratingWithTheCacheGivesTheLogitsOfTheWholeSequence) {
  Recipes recipes(6);
  Tokens tokens;
  for (int i = 0; i < 100 / part_of_inputs; ++i) {
    const auto words = recipes.next({false, false, false});
    SCOPED_TRACE(text("seed ", seed(), ": ", words));
    Built b(words);
    const auto all = logits_of(b, tokens.part(0, 1, 12));
    auto cache = b.model->make_cache(1, 12);
    autograd::Tape tape(b.arena, b.threads, false);
    std::size_t fed = 0;
    for (const std::size_t count : {5, 1, 1, 4, 1}) {
      {
        const auto next = b.model->next_logits(tape, std::span(tokens.tokens).subspan(fed, count),
                                               static_cast<std::int64_t>(count), cache);
        fed += count;
        expect_near(next.floats(), std::span<const float>(all).subspan((fed - 1) * 29, 29), 2e-5);
      }
      tape.clear();
    }
  }
}

}  // namespace
}  // namespace tessera::model
