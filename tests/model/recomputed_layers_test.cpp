// Which layers compute norms and activation functions again, and what they need not keep then.
#include "framework/model/recomputed_layers.h"

#include <gtest/gtest.h>

#include "tests/model/built.h"

namespace tessera::model {
namespace {

/// The layers of a chunk of `layers` that recompute their norms, as digits.
std::string with_norms(const GptOptions& o, const parallel::ModelChunk& chunk, std::int64_t layers = 4,
                       bool adapted = false) {
  std::string out;
  for (std::int64_t at = 0; at < layers; ++at)
    if (recomputes_norms(o, chunk, at, adapted)) out += std::to_string(at);
  return recomputes_norms(o, chunk, {}, adapted) ? out + " and predictions" : out;
}

GptOptions block(std::int64_t full, std::optional<std::int64_t> light) {
  GptOptions o;
  o.recompute_norm = true;
  o.recompute_norm_num_layers = light;
  if (full == 0) return o;
  o.recompute_granularity = Recomputation::full;
  o.recompute_method = RecomputedLayers::block;
  o.recompute_num_layers = full;
  return o;
}

TEST(RecomputedLayers, OfWideModelsWithAdaptersAreAllUnlessOptionsSayOtherwise) {
  GptOptions o;
  o.hidden_size = wide_layers - 64;
  EXPECT_EQ(with_norms(o, {}, 4, true), "");
  o.hidden_size = wide_layers;
  EXPECT_EQ(with_norms(o, {}), "");
  EXPECT_EQ(with_norms(o, {}, 4, true), "0123 and predictions");
  EXPECT_TRUE(recomputes_activation(o, {}, 0, true));
  EXPECT_FALSE(recomputes_activation(o, {}, 0, false));
  o.recompute_norm = o.recompute_activation_function = false;
  EXPECT_EQ(with_norms(o, {}, 4, true), "");
  EXPECT_FALSE(recomputes_activation(o, {}, 0, true));
  auto some = block(1, {});
  some.recompute_norm.reset();
  some.hidden_size = wide_layers;
  EXPECT_EQ(with_norms(some, {}, 4, true), "123") << "the first is recomputed fully";
  some.recompute_method = RecomputedLayers::uniform;
  EXPECT_EQ(with_norms(some, {}, 4, true), "") << "all are";
}

TEST(RecomputedLayers, BeginBehindThoseThatAreRecomputedFully) {
  EXPECT_EQ(with_norms({}, {}), "");
  EXPECT_EQ(with_norms(block(0, {}), {}), "0123 and predictions");
  EXPECT_EQ(with_norms(block(0, 3), {}), "012");
  EXPECT_EQ(with_norms(block(0, 0), {}), "");
  EXPECT_EQ(with_norms(block(1, {}), {}), "123");
  EXPECT_EQ(with_norms(block(1, 2), {}), "12");
  EXPECT_EQ(with_norms(block(9, 2), {}), "");
  EXPECT_EQ(layers_recomputed_alone(block(1, 2), {}), 1);
}

TEST(RecomputedLayers, CountFromTheRecomputeListOfTheirChunk) {
  parallel::ModelChunk chunk;
  chunk.recompute = {.layers = 2, .attention = 1};
  EXPECT_EQ(with_norms(block(1, 1), chunk), "2");
  EXPECT_EQ(with_norms(block(1, {}), chunk), "23");
  EXPECT_EQ(layers_recomputed_alone(block(1, 1), chunk), 2);
  chunk.recompute = {.layers = 0, .attention = 0};
  EXPECT_EQ(with_norms(block(1, {}), chunk), "0123 and predictions");
}

/// The order of MindSpeed: the priority of a layer is its index in the chunk x chunks + the index of the chunk.
TEST(RecomputedLayers, OfARankTakeTurnsBetweenItsChunks) {
  for (const std::int64_t full : {0, 1, 2, 3, 5})
    for (const std::int64_t light : {0, 1, 2, 4, 7, 12})
      for (int number = 0; number < 3; ++number) {
        auto o = block(full, light);
        parallel::ModelChunk chunk;
        chunk.chunk = number;
        chunk.chunks = 3;
        std::string each, in_turn;
        std::int64_t alone = 0;
        for (std::int64_t at = 0; at < 4; ++at) {
          const auto priority = at * 3 + number;
          if (at >= full && at < full + light) each += std::to_string(at);
          if (priority >= full && priority < full + light) in_turn += std::to_string(at);
          alone += priority < full ? 1 : 0;
        }
        EXPECT_EQ(with_norms(o, chunk), each);
        o.enable_recompute_layers_per_pp_rank = true;
        EXPECT_EQ(with_norms(o, chunk), in_turn) << full << " " << light << " " << number;
        EXPECT_EQ(layers_recomputed_alone(o, chunk), alone) << full << " " << number;
      }
}

/// What a forward pass keeps for its backward pass, in bytes.
std::size_t kept_by(const std::string& words, DType type) {
  const Precision precision = type == DType::float32 ? Precision{} : Precision{type, type, type, type};
  Built b("num_layers:3 hidden_size:32 ffn_hidden_size:48 hidden_dropout_rate:0.1" + words, 12, 29, precision);
  const Tokens tokens;
  ForwardMode mode;
  mode.training = true;
  autograd::Tape tape(b.arena, b.threads, true);
  (void)b.model->loss(tape, tokens.batch(), mode);
  const auto kept = b.arena.in_use();
  tape.clear();
  return kept;
}

TEST(RecomputedLayers, DoNotKeepTheResultsOfTheirNormsAndActivations) {
  const std::string modules = " recompute_granularity:selective recompute_modules[0]:layernorm",
                    norm = " recompute_norm:true", act = " recompute_activation_function:true",
                    block = " recompute_granularity:full recompute_method:block recompute_num_layers:1",
                    latent =
                        " multi_latent_attention:true kv_lora_rank:8 qk_head_dim:8 qk_pos_emb_head_dim:4 v_head_dim:8";
  struct Case {
    std::string model, more;
    std::size_t norms, activations;  ///< results of 24 tokens that are not kept
  };
  const std::vector<Case> cases = {{"", modules, 6, 0},
                                   {" normalization:RMSNorm", norm, 6, 0},
                                   {" normalization:RMSNorm", norm + " recompute_norm_num_layers:2", 4, 0},
                                   {"", act, 0, 3},
                                   {" hidden_act:swiglu", act + " recompute_activation_function_num_layers:1", 0, 1},
                                   {" hidden_act:geglu", norm + act, 6, 3},
                                   {block, norm + act, 4, 2},
                                   {block, norm + act + " recompute_norm_num_layers:1", 2, 2},
                                   {" use_parallel_residual:true", norm, 6, 0},
                                   {" use_parallel_residual:true shared_parallel_norm:true", norm, 3, 0},
                                   {" use_sandwich_norm:true", norm, 6, 0},
                                   {" apply_residual_connection_post_norm:true", norm, 6, 0},
                                   {" qk_layernorm:true position_embedding_type:rope", norm, 6, 0},
                                   {" recompute_granularity:selective recompute_modules[0]:mlp", norm + act, 6, 0},
                                   {latent, norm, 6, 0}};
  for (const auto& c : cases)
    for (const auto type : {DType::float32, DType::bfloat16}) {
      const auto plain = kept_by(c.model, type), less = kept_by(c.model + c.more, type);
      EXPECT_EQ(plain - less, 24 * (32 * c.norms + 48 * c.activations) * size_of(type)) << c.model << " with" << c.more;
    }
}

}  // namespace
}  // namespace tessera::model
