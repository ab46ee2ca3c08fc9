// Each part of a model against what its source says, by the smallest means that can tell it from its neighbours.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/model/built.h"

namespace tessera::model {
namespace {

/// sees[t][s]: whether the logits at token t of the first sample change with token s.
std::vector<std::vector<bool>> sights(const std::string& words, std::span<const std::uint8_t> visible = {}) {
  Built b("num_layers:1 position_embedding_type:none init_method_std:0.5 " + words);
  Tokens tokens;
  auto batch = tokens.part(0, 1, 12);
  batch.visible = visible;
  const auto usual = logits_of(b, batch);
  std::vector<std::vector<bool>> sees(12, std::vector<bool>(12));
  for (std::size_t s = 0; s < 12; ++s) {
    Tokens other;
    other.tokens[s] = (other.tokens[s] + 11) % 29;
    auto changed = other.part(0, 1, 12);
    changed.visible = visible;
    const auto now = logits_of(b, changed);
    for (std::size_t t = 0; t < 12; ++t)
      sees[t][s] = !std::equal(now.begin() + static_cast<std::ptrdiff_t>(t * 29),
                               now.begin() + static_cast<std::ptrdiff_t>((t + 1) * 29),
                               usual.begin() + static_cast<std::ptrdiff_t>(t * 29));
  }
  return sees;
}

void expect_window(const std::string& words, std::int64_t left, std::int64_t right) {
  const auto sees = sights(words);
  for (std::int64_t t = 0; t < 12; ++t)
    for (std::int64_t s = 0; s < 12; ++s)
      EXPECT_EQ(sees[static_cast<std::size_t>(t)][static_cast<std::size_t>(s)], t - left <= s && s <= t + right)
          << words << ": " << t << " and " << s;
}

TEST(Window, IsSeenToTheLeftAndToTheRight) {
  expect_window("", 12, 0);
  expect_window("window_size[0]:3 window_size[1]:0", 3, 0);
  expect_window("window_size[0]:3 window_size[1]:2", 3, 2);
  expect_window("window_size[0]:-1 window_size[1]:4", 12, 4);
  expect_window("fa_config.pre_tokens:2 fa_config.next_tokens:1", 2, 1);
  expect_window("sliding_window:4", 3, 0);  // counted with the token itself
  expect_window("sliding_window:1", 0, 0);
}

TEST(Window, IsOfTheLayersThatLayerTypesNames) {
  expect_window("sliding_window:4 layer_types[0]:full_attention", 12, 0);
  expect_window("num_layers:2 sliding_window:4", 6, 0);  // what two layers see adds up
  expect_window("num_layers:4 sliding_window:2 layer_types[0]:sliding_attention layer_types[1]:sliding_attention", 4,
                0);
  expect_window("num_layers:2 sliding_window:2 layer_types[0]:sliding_attention layer_types[1]:full_attention", 12, 0);
}

TEST(Mask, OfAnyFormIsWhatEachTokenSees) {
  std::vector<std::uint8_t> visible(144);
  for (std::size_t t = 0; t < 12; ++t)
    for (std::size_t s = 0; s < 12; ++s) visible[t * 12 + s] = t == s || (t * 5 + s * 3) % 7 < 3;
  const auto sees = sights("", visible);
  for (std::size_t t = 0; t < 12; ++t)
    for (std::size_t s = 0; s < 12; ++s) EXPECT_EQ(sees[t][s], visible[t * 12 + s] != 0) << t << " and " << s;
}

TEST(Window, ToTheRightIsRefusedByGeneration) {
  Built b("window_size[0]:3 window_size[1]:2");
  auto cache = b.model->make_cache(1, 12);
  autograd::Tape tape(b.arena, b.threads, false);
  const std::vector<std::int32_t> token = {1};
  try {
    b.model->next_logits(tape, token, 1, cache);
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("window_size[1] is 2, so tokens attend to later tokens"),
              std::string::npos);
  }
}

/// The parameter of that name; fails when there is none.
nn::Parameter* named(Built& b, const std::string& name) {
  for (auto* p : b.model->parameters())
    if (p->name == name) return p;
  ADD_FAILURE() << "no parameter " << name;
  return nullptr;
}

TEST(SandwichNorm, BeginsWithItsScalesAsTheGainIsStored) {
  const std::string words =
      "normalization:RMSNorm use_sandwich_norm:true attn_post_norm_scale:0.0447 ffn_post_norm_scale:0.0825";
  Built b(words), less_one(words + " apply_layernorm_1p:true");
  for (const auto v : named(b, "decoder.layers.1.post_self_attn_layernorm.weight")->leaf.value.floats())
    EXPECT_EQ(v, 0.0447F);
  for (const auto v : named(b, "decoder.layers.0.post_mlp_layernorm.weight")->leaf.value.floats())
    EXPECT_EQ(v, 0.0825F);
  for (const auto v : named(less_one, "decoder.layers.0.post_mlp_layernorm.weight")->leaf.value.floats())
    EXPECT_EQ(v, static_cast<float>(0.0825 - 1));
  const Tokens tokens;  // the same model, written in two ways
  const auto a = logits_of(b, tokens.batch()), c = logits_of(less_one, tokens.batch());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], c[i], 1e-6);
}

TEST(HeadNorm, HasMegatronsNamesAndTheChannelsOfOneHead) {
  Built b("qk_layernorm:true kv_channels:6 group_query_attention:true num_query_groups:2");
  for (const auto* name : {"q_layernorm.weight", "q_layernorm.bias", "k_layernorm.weight", "k_layernorm.bias"})
    EXPECT_EQ(named(b, text("decoder.layers.1.self_attention.", name))->global_shape, Shape({6}));
  Built rms("qk_layernorm:true normalization:RMSNorm");
  for (const auto* p : rms.model->parameters()) EXPECT_EQ(p->name.find("layernorm.bias"), std::string::npos) << p->name;
}

TEST(HeadNorm, MakesScoresIndifferentToTheSizeOfTheProjection) {
  Built b("qk_layernorm:true init_method_std:0.3 norm_epsilon:1e-12 qkv_has_bias:false"),
      larger("qk_layernorm:true init_method_std:0.3 norm_epsilon:1e-12 qkv_has_bias:false");
  for (std::int64_t layer = 0; layer < 2; ++layer) {  // rows of queries and keys, not of values
    auto rows = named(larger, text("decoder.layers.", layer, ".self_attention.linear_qkv.weight"))->leaf.value.floats();
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i / 16 % 12 < 8) rows[i] *= 5;
  }
  const Tokens tokens;
  const auto a = logits_of(b, tokens.batch()), c = logits_of(larger, tokens.batch());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], c[i], 1e-5);
}

TEST(RotaryScaling, OfLlama3StretchesLongWavesAndLeavesShortOnes) {
  nn::RotaryScaling s;
  s.kind = nn::RotaryScaling::Kind::llama3;
  s.factor = 8;
  const auto plain = nn::rotary_frequencies(128, 500000, {}), bent = nn::rotary_frequencies(128, 500000, s);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double length = 2 * M_PI / plain[i];
    if (length < 8192.0 / 4)
      EXPECT_EQ(bent[i], plain[i]);
    else if (length > 8192)
      EXPECT_EQ(bent[i], plain[i] / 8);
    else
      EXPECT_NEAR(bent[i], plain[i] * (1 / 8.0 + (1 - 1 / 8.0) * (8192 / length - 1) / 3), 1e-12 * plain[i]);
  }
  EXPECT_GT(plain.front(), 0.9);
  EXPECT_EQ(bent.back(), plain.back() / 8);
}

TEST(RotaryScaling, OfYarnSlowsThePairsThatTurnSeldom) {
  nn::RotaryScaling s;
  s.kind = nn::RotaryScaling::Kind::yarn;
  s.factor = 4;
  s.original = 4096;
  s.attention_factor = 1.25;
  const auto plain = nn::rotary_frequencies(64, 10000, {}), bent = nn::rotary_frequencies(64, 10000, s);
  // 64 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 10.47 and 64 ln(4096 / (2 pi)) / (2 ln 10000) = 22.51
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double slowed = i <= 10 ? 0 : i >= 23 ? 1 : (static_cast<double>(i) - 10) / 13;
    EXPECT_NEAR(bent[i], plain[i] * (1 - slowed + slowed / 4), 1e-12) << i;
  }
  const nn::RotaryEmbedding table(64, 10000, kernels::RotaryLayout::half, 2, s);
  kernels::Threads threads(1);
  EXPECT_FLOAT_EQ(table.tables(threads, {}).cosine[0], 1.25F);
}

/// DeepSeek's and MindSpeed-LLM's definition, with m(a) = 0.1 a ln(factor) + 1: scores times m(mscale_all_dim)^2,
/// rotated dimensions times m(mscale) / m(mscale_all_dim). Megatron-LM's is the same where both are equal.
TEST(RotaryScaling, OfLatentAttentionIsSaidInTwoWays) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const auto draw = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(random); };
  for (int round = 0; round < 50; ++round) {
    GptOptions mindspeed, megatron;
    mindspeed.multi_latent_attention = megatron.multi_latent_attention = true;
    mindspeed.rope_scaling_type = nn::RotaryScaling::Kind::yarn;
    const double factor = mindspeed.rope_scaling_factor = draw(0.5, 64), a = mindspeed.rope_scaling_mscale = draw(0, 2),
                 b = mindspeed.rope_scaling_mscale_all_dim = round % 2 == 0 ? a : draw(0, 2);
    const auto m = [&](double weight) { return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1; };
    EXPECT_NEAR(mindspeed.latent_scale() * std::sqrt(128.0 + 64), m(b) * m(b), 1e-12);
    EXPECT_NEAR(mindspeed.rotary_scaling(100).attention_factor, m(a) / m(b), 1e-12);
    if (a != b) continue;
    megatron.rotary_scaling_factor = factor;
    megatron.mscale = megatron.mscale_all_dim = a;
    EXPECT_EQ(mindspeed.latent_scale(), megatron.latent_scale());
    const auto one = mindspeed.rotary_scaling(100), other = megatron.rotary_scaling(100);
    EXPECT_EQ(one.attention_factor, other.attention_factor);
    EXPECT_EQ(nn::rotary_frequencies(64, 10000, one), nn::rotary_frequencies(64, 10000, other));
  }
}

TEST(RotaryScaling, InterpolationDividesPositions) {
  nn::RotaryScaling s;
  s.positions_per_step = 4;
  const nn::RotaryEmbedding far(8, 100, kernels::RotaryLayout::half, 9, s),
      near(8, 100, kernels::RotaryLayout::half, 3);
  kernels::Threads threads(1);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(far.tables(threads, {}).sine[8 * 4 + i], near.tables(threads, {}).sine[2 * 4 + i]);
    EXPECT_FLOAT_EQ(far.tables(threads, {}).cosine[8 * 4 + i], near.tables(threads, {}).cosine[2 * 4 + i]);
  }
}

TEST(Initialisation, XavierIsUniformWithinItsBoundForEveryWeight) {
  Built b("init_method:xavier_uniform hidden_size:64 num_layers:1", 12, 128);
  for (auto* p : b.model->parameters()) {
    if (p->global_shape.rank() != 2) continue;
    const auto v = p->leaf.value.floats();
    const double bound = std::sqrt(6.0 / static_cast<double>(p->global_shape[0] + p->global_shape[1]));
    double most = 0, square = 0;
    for (const double x : v) most = std::max(most, std::abs(x)), square += x * x / static_cast<double>(v.size());
    EXPECT_LE(most, bound * (1 + 1e-6)) << p->name;
    EXPECT_GT(most, 0.98 * bound) << p->name;
    // The variance of 768 and more draws is known to a few percent.
    EXPECT_NEAR(square, bound * bound / 3, 0.1 * bound * bound / 3) << p->name;
  }
}

TEST(ParallelResidual, AddsBothBranchesToTheInput) {
  const std::string words = "num_layers:1 init_method_std:0.3 use_final_norm:false position_embedding_type:none ";
  Built both(words + "use_parallel_residual:true"), alone(words);
  // With a feed-forward that gives zero, and with an attention that gives zero, the two forms are one.
  const Tokens tokens;
  for (const auto* part : {"self_attention.linear_proj.weight", "mlp.linear_fc2.weight"}) {
    Built a(words + "use_parallel_residual:true"), b(words);
    for (auto* built : {&a, &b}) {
      auto zero = named(*built, text("decoder.layers.0.", part))->leaf.value.floats();
      std::fill(zero.begin(), zero.end(), 0.0F);
    }
    EXPECT_EQ(logits_of(a, tokens.batch()), logits_of(b, tokens.batch())) << part;
  }
  EXPECT_NE(logits_of(both, tokens.batch()), logits_of(alone, tokens.batch()));
}

TEST(ScaledEmbedding, IsTheSameAsALargerTable) {
  const std::string words = "position_embedding_type:rope untie_embeddings_and_output_weights:true ";
  Built scaled(words + "scale_embeddings:true"), plain(words);
  for (auto& v : named(plain, "embedding.word_embeddings.weight")->leaf.value.floats()) v *= 4;  // root of 16
  const Tokens tokens;
  EXPECT_EQ(logits_of(scaled, tokens.batch()), logits_of(plain, tokens.batch()));
}

TEST(Softcap, BoundsTheLogits) {
  Built b("output_logit_softcap:0.5 init_method_std:1");
  const Tokens tokens;
  float most = 0;
  for (const auto v : logits_of(b, tokens.batch())) most = std::max(most, std::abs(v));
  EXPECT_LE(most, 0.5F);
  EXPECT_GT(most, 0.45F);
}

/// Operations of a step of two samples of 12 tokens; every weight of a product counts 6 per token.
double operations(const std::string& words) { return Built(words).model->flops(2, 12); }

TEST(Operations, AreThoseOfWeightsAndOfTheKeysThatATokenSees) {
  const double per_token = 6 * 24;
  // Of two layers: projections 16 x (3 x 16 + 16), feed-forward network 2 x 16 x 64; the head has 29 rows.
  const double products = 2 * (1024 + 2048) + 16 * 29;
  // Scores and values take 2 x 16 multiplications per key; without a window a token sees 12 / 2.
  EXPECT_DOUBLE_EQ(operations(""), per_token * (products + 2 * 32 * 6.0));
  // A window of 4: 12 x 4 pairs less the half of 4 x 4 that lies before the first token, of 12 tokens.
  const double window = (12 * 4 - 8) / 12.0;
  EXPECT_DOUBLE_EQ(operations("sliding_window:4"), per_token * (products + 2 * 32 * window));
  EXPECT_DOUBLE_EQ(operations("window_size[0]:3 window_size[1]:0"), operations("sliding_window:4"));
  EXPECT_DOUBLE_EQ(operations("sliding_window:4 layer_types[0]:sliding_attention layer_types[1]:full_attention"),
                   per_token * (products + 32 * (window + 6)));
  EXPECT_DOUBLE_EQ(operations("window_size[0]:3 window_size[1]:2"),
                   per_token * (products + 2 * 32 * (window + (12 * 2 - 2) / 12.0)));
  // As long as the samples or longer: no window.
  for (const char* whole : {"sliding_window:12", "sliding_window:2147483647", "window_size[0]:-1 window_size[1]:0"})
    EXPECT_DOUBLE_EQ(operations(whole), operations("")) << whole;
  EXPECT_DOUBLE_EQ(operations("window_size[0]:-1 window_size[1]:99"), per_token * (products + 2 * 32 * 12.0));
}

TEST(Operations, OfExpertsAreThoseOfATokensExpertsAndOfTheSharedOne) {
  const std::string experts =
      "add_bias_linear:false num_experts:4 moe_router_topk:2 moe_ffn_hidden_size:8 "
      "moe_shared_expert_intermediate_size:5 ";
  const double dense = 2 * 16 * 64, sparse = 2 * 16 * (2 * 8 + 5), token = 6 * 24;
  EXPECT_DOUBLE_EQ(operations(experts + "moe_layer_freq:([0]*1+[1]*1)"), operations("") - token * (dense - sparse));
  EXPECT_DOUBLE_EQ(operations(experts), operations("") - token * 2 * (dense - sparse));
}

TEST(Operations, OfLatentAttentionAreThoseOfItsProducts) {
  const double query = 6 * (16 + 24 + 1), key_value = 8 * (16 + 4 * (4 + 3) + 1), rotated = 16 * 2, out = 4 * 3 * 16;
  const double scores = (4 * 6 + 4 * 3) * 6, usual = 1024 + 2 * 16 * 6;
  EXPECT_DOUBLE_EQ(operations("multi_latent_attention:true q_lora_rank:6 kv_lora_rank:8 qk_head_dim:4 "
                              "qk_pos_emb_head_dim:2 v_head_dim:3 position_embedding_type:rope"),
                   operations("") + 6 * 24 * 2 * (query + key_value + rotated + out + scores - usual));
}

TEST(GptOptions, OfNewPartsThatContradictEachOtherAreNamed) {
  const auto said = [](auto change) {
    GptOptions o;
    o.num_layers = 2, o.hidden_size = 16, o.num_attention_heads = 4;
    change(o);
    const auto found = broken_rules(o, 8);
    return found.empty() ? std::string("nothing") : found[0].option;
  };
  EXPECT_EQ(said([](auto&) {}), "nothing");
  EXPECT_EQ(said([](auto& o) { o.sliding_window = 4, o.window_size = {5, 0}; }), "sliding_window");
  EXPECT_EQ(said([](auto& o) { o.window_size = {5, -1}; }), "window_size");
  EXPECT_EQ(said([](auto& o) { o.layer_types = {LayerSight::window}; }), "layer_types");
  EXPECT_EQ(said([](auto& o) { o.use_sandwich_norm = true, o.attn_post_norm_scale = 0.1; }), "attn_post_norm_scale");
  EXPECT_EQ(said([](auto& o) { o.shared_parallel_norm = true; }), "shared_parallel_norm");
  EXPECT_EQ(said([](auto& o) { o.scale_embeddings = true; }), "scale_embeddings");
  EXPECT_EQ(said([](auto& o) { o.recompute_granularity = Recomputation::full; }), "recompute_method");
  EXPECT_EQ(said([](auto& o) { o.recompute_granularity = Recomputation::selective, o.recompute_num_layers = 1; }),
            "recompute_num_layers");
  EXPECT_EQ(said([](auto& o) { o.swiglu = true, o.ffn_hidden_size = 32, o.hidden_act = nn::FeedForwardKind::relu; }),
            "swiglu");
}

}  // namespace
}  // namespace tessera::model
