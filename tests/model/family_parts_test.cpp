// Parts that families of Hugging Face Transformers need: longrope, offsets of positions, norms over all heads, biases
// of the output layer.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/built.h"

namespace tessera::model {
namespace {

const std::string longrope =
    "position_embedding_type:rope init_method_std:0.5 max_position_embeddings:24 rope_scaling_type:longrope "
    "rope_scaling_original_max_position_embeddings:6 rope_scaling_short_factor[0]:1 rope_scaling_short_factor[1]:1.5 "
    "rope_scaling_long_factor[0]:3 rope_scaling_long_factor[1]:9";

const nn::Parameter* parameter_of(const Built& b, const std::string& name) {
  for (const auto* parameter : b.model->parameters())
    if (parameter->name == name) return parameter;
  return nullptr;
}

TEST(Longrope, DividesEachFrequencyByTheNumberThatTheLengthChooses) {
  GptOptions o;
  o.num_layers = 2, o.hidden_size = 16, o.num_attention_heads = 4;
  o.position_embedding_type = PositionEmbedding::rope;
  o.rope_scaling_type = nn::RotaryScaling::Kind::longrope;
  o.rope_scaling_original_max_position_embeddings = 6;
  o.rope_scaling_short_factor = {1, 1.5}, o.rope_scaling_long_factor = {3, 9};
  const auto frequencies = [&](std::int64_t length) {
    return nn::rotary_frequencies(4, 10000, o.rotary_scaling(24, length));
  };
  EXPECT_EQ(frequencies(6), (std::vector<double>{1, 0.01 / 1.5}));
  EXPECT_EQ(frequencies(7), (std::vector<double>{1.0 / 3, 0.01 / 9}));
  EXPECT_DOUBLE_EQ(o.rotary_scaling(24).attention_factor, std::sqrt(1 + std::log(4.0) / std::log(6.0)));
  EXPECT_EQ(o.rotary_scaling(6).attention_factor, 1);
  o.rope_scaling_attention_factor = 1.25;
  EXPECT_EQ(o.rotary_scaling(24).attention_factor, 1.25);
}

/// A batch up to the original maximum is computed as by a model without long factors, a longer one as by a model
/// without short factors.
TEST(Longrope, IsChosenByThePositionsOfTheWholeBatch) {
  Built b(longrope);
  auto words = longrope;
  words.replace(words.find("short_factor[1]:1.5"), 19, "short_factor[1]:7.5");
  Built other_short(words);
  Tokens tokens;
  EXPECT_EQ(logits_of(b, tokens.part(0, 2, 12)), logits_of(other_short, tokens.part(0, 2, 12)));
  EXPECT_NE(logits_of(b, tokens.part(0, 2, 6)), logits_of(other_short, tokens.part(0, 2, 6)));
  // Documents whose positions begin anew: none goes beyond the maximum.
  Tokens packed;
  for (std::size_t i = 0; i < packed.positions.size(); ++i) packed.positions[i] = static_cast<std::int32_t>(i % 6);
  EXPECT_NE(logits_of(b, packed.batch()), logits_of(other_short, packed.batch()));
}

/// A generated token sees what a pass over the whole text so far sees: keys of the beginning too have the long factors.
TEST(Longrope, GenerationComputesTheTextAgainWhereTheFactorsChange) {
  for (const auto& feeds :
       std::vector<std::vector<std::int64_t>>{{3, 1, 1, 1, 1, 1, 4}, {6, 6}, {5, 7}, {12}, {1, 11}}) {
    Built b(longrope);
    const Tokens tokens;
    autograd::Tape tape(b.arena, b.threads, false);
    for (const std::int64_t samples : {1, 2}) {
      auto cache = b.model->make_cache(samples, 12);
      std::int64_t fed = 0;
      for (const auto count : feeds) {
        std::vector<std::int32_t> next;
        for (std::int64_t s = 0; s < samples; ++s)
          for (std::int64_t t = 0; t < count; ++t)
            next.push_back(tokens.tokens[static_cast<std::size_t>((2 * s + fed + t) % 24)]);
        const auto logits = b.model->next_logits(tape, next, count, cache);
        fed += count;
        EXPECT_EQ(cache.length(), fed);
        for (std::int64_t s = 0; s < samples; ++s) {
          Tokens whole;
          for (std::int64_t t = 0; t < fed; ++t)
            whole.tokens[static_cast<std::size_t>(t)] = tokens.tokens[static_cast<std::size_t>((2 * s + t) % 24)];
          std::fill(whole.starts.begin(), whole.starts.end(), 0);
          const auto all = logits_of(b, whole.part(0, 1, fed));
          for (std::size_t v = 0; v < 29; ++v)
            EXPECT_NEAR(logits.floats()[static_cast<std::size_t>(s) * 29 + v],
                        all[static_cast<std::size_t>(fed - 1) * 29 + v], 2e-5)
                << fed << " of sample " << s;
        }
      }
    }
  }
}

TEST(Longrope, WithoutANumberForEachPairIsRefused) {
  const auto found = [](auto change) {
    GptOptions o;
    o.num_layers = 2, o.hidden_size = 16, o.num_attention_heads = 4;
    o.position_embedding_type = PositionEmbedding::rope;
    o.rope_scaling_type = nn::RotaryScaling::Kind::longrope;
    o.rope_scaling_short_factor = {1, 1.5}, o.rope_scaling_long_factor = {3, 9};
    change(o);
    const auto broken = broken_rules(o, 8);
    return broken.empty() ? std::string() : broken[0].option + ": " + broken[0].message;
  };
  EXPECT_EQ(found([](auto&) {}), "");
  EXPECT_EQ(found([](auto& o) { o.rope_scaling_long_factor.reset(); }),
            "rope_scaling_long_factor: rope_scaling_type is longrope, but rope_scaling_long_factor is not given; "
            "expected 2: half of the rotary dimensions of a head");
  EXPECT_EQ(found([](auto& o) { o.rope_scaling_short_factor = {1}; }),
            "rope_scaling_short_factor: rope_scaling_type is longrope, but rope_scaling_short_factor has 1 numbers; "
            "expected 2: half of the rotary dimensions of a head");
}

/// The rows in front are there, and no token has them.
TEST(PositionOffset, IsATableWithMoreRowsInFront) {
  Built plain("init_method_std:0.5"), b("init_method_std:0.5 position_embedding_offset:2");
  const std::string name = "embedding.position_embeddings.weight";
  ASSERT_EQ(parameter_of(b, name)->global_shape, Shape({14, 16}));
  for (auto* parameter : b.model->parameters()) {
    const auto from = parameter_of(plain, parameter->name)->leaf.value.floats();
    auto to = parameter->leaf.value.floats();
    std::fill(to.begin(), to.end(), 1e9F);
    std::copy(from.begin(), from.end(), to.end() - static_cast<std::ptrdiff_t>(from.size()));
  }
  const Tokens tokens;
  EXPECT_EQ(logits_of(b, tokens.batch()), logits_of(plain, tokens.batch()));
}

TEST(WholeNorm, HasAWeightForEachChannelOfAllHeads) {
  Built b(
      "qk_layernorm:true qk_layernorm_all_heads:true normalization:RMSNorm kv_channels:6 group_query_attention:true "
      "num_query_groups:2 use_pre_norm:false use_sandwich_norm:true");
  const std::string layer = "decoder.layers.1.";
  EXPECT_EQ(parameter_of(b, layer + "self_attention.q_layernorm.weight")->global_shape, Shape({24}));
  EXPECT_EQ(parameter_of(b, layer + "self_attention.k_layernorm.weight")->global_shape, Shape({12}));
  for (const auto* name : {"input_layernorm.weight", "pre_mlp_layernorm.weight"})
    EXPECT_EQ(parameter_of(b, layer + name), nullptr) << name;
}

TEST(OutputBias, IsAddedToTheLogitsAlsoOfATiedLayer) {
  for (const std::string untied : {"true", "false"}) {
    Built b("output_layer_has_bias:true untie_embeddings_and_output_weights:" + untied);
    const Tokens tokens;
    const auto before = logits_of(b, tokens.batch());
    for (auto* parameter : b.model->parameters())
      if (parameter->name == "output_layer.bias") {
        EXPECT_EQ(parameter->global_shape, Shape({29}));
        parameter->leaf.value.floats()[3] = 2;
      }
    const auto after = logits_of(b, tokens.batch());
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i] - before[i], i % 29 == 3 ? 2 : 0, 1e-6) << i;
  }
}

TEST(GptOptions, OfPartsOfFamiliesThatContradictEachOtherAreNamed) {
  const auto said = [](auto change) {
    GptOptions o;
    o.num_layers = 2, o.hidden_size = 16, o.num_attention_heads = 4;
    change(o);
    const auto found = broken_rules(o, 8);
    return found.empty() ? std::string("nothing") : found[0].option;
  };
  EXPECT_EQ(said([](auto& o) { o.use_pre_norm = false; }), "use_pre_norm");
  EXPECT_EQ(said([](auto& o) { o.use_pre_norm = false, o.use_sandwich_norm = true; }), "nothing");
  EXPECT_EQ(said([](auto& o) { o.use_pre_norm = false, o.use_sandwich_norm = o.use_parallel_residual = true; }),
            "use_pre_norm");
  EXPECT_EQ(said([](auto& o) { o.qk_layernorm = o.qk_layernorm_all_heads = true; }), "qk_layernorm_all_heads");
}

}  // namespace
}  // namespace tessera::model
