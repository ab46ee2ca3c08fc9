#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "framework/kernels/vector.h"
#include "framework/model/generation.h"
#include "tests/model/built.h"

namespace tessera::model {
namespace {

const char* const gpt2_like = "hidden_dropout_rate:0.1 attention_dropout_rate:0.1";
const char* const llama_like =
    "position_embedding_type:rope normalization:RMSNorm hidden_act:swiglu add_bias_linear:false "
    "group_query_attention:true "
    "ffn_hidden_size:24 num_query_groups:2 untie_embeddings_and_output_weights:true";

const char* const mixtral_like =
    "position_embedding_type:rope normalization:RMSNorm hidden_act:swiglu add_bias_linear:false ffn_hidden_size:12 "
    "num_experts:4 moe_aux_loss_coeff:0.1 init_method_std:0.2";
const char* const deepseek_like =
    "position_embedding_type:rope normalization:RMSNorm hidden_act:swiglu add_bias_linear:false ffn_hidden_size:24 "
    "multi_latent_attention:true q_lora_rank:6 kv_lora_rank:8 qk_head_dim:4 qk_pos_emb_head_dim:2 v_head_dim:3 "
    "qk_layernorm:true rotary_scaling_factor:4 max_position_embeddings:32 num_experts:4 moe_ffn_hidden_size:8 "
    "moe_router_score_function:sigmoid moe_layer_freq:([0]*1+[1]*1) moe_shared_expert_intermediate_size:8 "
    "mtp_num_layers:2 init_method_std:0.2";
const char* const latent_like =
    "multi_latent_attention:true kv_lora_rank:8 qk_head_dim:2 qk_pos_emb_head_dim:4 v_head_dim:9 "
    "hidden_dropout_rate:0.1 attention_dropout_rate:0.1";

class EveryKind : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gpt, EveryKind,
                         testing::Values(gpt2_like, llama_like, mixtral_like, deepseek_like, latent_like));

TEST_P(EveryKind, TheGradientPointsUphill) {
  Built b(GetParam());
  const Tokens tokens;
  ForwardMode mode;
  mode.training = true;
  mode.objective = &mean_cross_entropy();
  mode.share.scale = 23;  // as many tokens count, so the gradient is that of their sum
  autograd::Tape tape(b.arena, b.threads, true);
  b.model->loss(tape, tokens.batch(), mode);
  tape.backward();
  tape.clear();
  // Along the gradient the loss changes by step * |g|^2; halving the step halves the error of that, so 1 % at this step
  // is far below a missing term.
  double square = 0;
  for (const double g : b.grads) square += g * g;
  const auto moved = [&](double step) {
    auto before = b.values;
    for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] += static_cast<float>(step * b.grads[i]);
    autograd::Tape looking(b.arena, b.threads, false);
    const auto sum = b.model->loss(looking, tokens.batch(), mode).total.sum;
    b.values = before;
    return sum;
  };
  const double step = 2e-3 / std::sqrt(square);
  EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step * square), 1, 1e-2);
}

TEST_P(EveryKind, LossOfTheFusedHeadIsThatOfTheLogits) {
  Built b(GetParam());
  const Tokens tokens;
  autograd::Tape tape(b.arena, b.threads, false);
  const auto loss = b.model->loss(tape, tokens.batch(), {});
  const auto logits = b.model->logits(tape, tokens.batch(), {});
  for (std::size_t row = 0; row < 24; ++row) {
    const auto of = logits.floats().subspan(row * 29, 29);
    double sum = 0;
    for (const double v : of) sum += std::exp(v);
    EXPECT_NEAR(loss.token_loss.floats()[row], std::log(sum) - of[static_cast<std::size_t>(tokens.labels[row])], 1e-5);
  }
  EXPECT_EQ(loss.total.count, 23);
}

TEST_P(EveryKind, GeneratingWithTheCacheGivesTheLogitsOfTheWholeSequence) {
  Built b(GetParam());
  const Tokens tokens;
  autograd::Tape tape(b.arena, b.threads, false);
  auto one = tokens.batch();
  one.samples = 1;
  for (auto* span : {&one.tokens, &one.labels, &one.positions, &one.document_start}) *span = span->first(12);
  one.loss_mask = one.loss_mask.first(12);
  const auto all = b.model->logits(tape, one, {});
  auto cache = b.model->make_cache(1, 12);
  std::int64_t fed = 0;
  for (const std::int64_t count : {5, 1, 1, 3, 2}) {
    const auto next = b.model->next_logits(
        tape, one.tokens.subspan(static_cast<std::size_t>(fed), static_cast<std::size_t>(count)), count, cache);
    fed += count;
    for (std::size_t v = 0; v < 29; ++v)
      EXPECT_NEAR(next.floats()[v], all.floats()[static_cast<std::size_t>(fed - 1) * 29 + v], 1e-5) << fed;
  }
  EXPECT_THROW(b.model->next_logits(tape, one.tokens.first(1), 1, cache), ShapeError);
}

TEST_P(EveryKind, TheSameBitsOnOneTwoAndThreeThreads) {
  std::vector<std::vector<float>> grads;
  for (const int count : {1, 2, 3}) {
    Built b(GetParam());
    kernels::Threads threads(count);
    const Tokens tokens;
    ForwardMode mode;
    mode.training = true;
    autograd::Tape tape(b.arena, threads, true);
    b.model->loss(tape, tokens.batch(), mode);
    tape.backward();
    tape.clear();
    grads.push_back(b.grads);
  }
  EXPECT_EQ(grads[0], grads[1]);
  EXPECT_EQ(grads[0], grads[2]);
}

TEST(GptModel, InitialWeightsAreMegatronsAndDoNotDependOnPadding) {
  Built b("num_layers:8 hidden_size:64", 12, 128), padded("num_layers:8 hidden_size:64", 12, 256);
  for (auto* p : b.model->parameters()) {
    const auto v = p->leaf.value.floats();
    const auto mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    double var = 0;
    for (const double x : v) var += (x - mean) * (x - mean) / static_cast<double>(v.size());
    const bool scaled = p->name.find("linear_proj.weight") != std::string::npos ||
                        p->name.find("linear_fc2.weight") != std::string::npos;
    const bool norm = p->name.find("layernorm.weight") != std::string::npos, bias = p->name.ends_with("bias");
    const double expected = norm || bias ? 0 : scaled ? 0.02 / std::sqrt(16.0) : 0.02;
    // The deviation of a sample of n >= 768 values is known to about 1/sqrt(2 n) = 2.6 %; four times that.
    EXPECT_NEAR(std::sqrt(var), expected, 0.1 * expected) << p->name;
    EXPECT_NEAR(mean, norm ? 1 : 0, 5 * expected / std::sqrt(static_cast<double>(v.size()))) << p->name;
  }
  const auto words = b.model->parameters()[0]->leaf.value.floats(),
             more = padded.model->parameters()[0]->leaf.value.floats();
  EXPECT_TRUE(std::equal(words.begin(), words.end(), more.begin()));
}

TEST(GptModel, ParametersHaveMegatronsNamesAndShapes) {
  Built b(llama_like);
  std::vector<std::string> lines;
  for (const auto* p : b.model->parameters()) lines.push_back(text(p->name, " ", p->global_shape));
  EXPECT_EQ(lines[0], "embedding.word_embeddings.weight [29, 16]");
  EXPECT_EQ(lines[1], "decoder.layers.0.input_layernorm.weight [16]");
  EXPECT_EQ(lines[2], "decoder.layers.0.self_attention.linear_qkv.weight [32, 16]");
  EXPECT_EQ(lines[3], "decoder.layers.0.self_attention.linear_proj.weight [16, 16]");
  EXPECT_EQ(lines.back(), "output_layer.weight [29, 16]");
  EXPECT_EQ(lines[lines.size() - 2], "decoder.final_layernorm.weight [16]");
}

TEST(GptModel, DropoutDependsOnTheSampleNotOnItsPlaceInTheBatch) {
  Built b(gpt2_like);
  Tokens tokens, turned;
  turned.ids = {9, 5};
  std::fill(tokens.starts.begin(), tokens.starts.end(), 0);
  std::fill(turned.starts.begin(), turned.starts.end(), 0);
  std::rotate(turned.tokens.begin(), turned.tokens.begin() + 12, turned.tokens.end());
  ForwardMode mode;
  mode.training = true;
  autograd::Tape tape(b.arena, b.threads, false);
  const auto a = b.model->logits(tape, tokens.batch(), mode), c = b.model->logits(tape, turned.batch(), mode);
  const auto half = a.floats().size() / 2;
  EXPECT_TRUE(std::equal(a.floats().begin(), a.floats().begin() + static_cast<std::ptrdiff_t>(half),
                         c.floats().begin() + static_cast<std::ptrdiff_t>(half)));
  mode.seed = 1;
  const auto other = b.model->logits(tape, tokens.batch(), mode);
  EXPECT_FALSE(std::equal(a.floats().begin(), a.floats().end(), other.floats().begin()));
}

TEST(GptModel, ADocumentDoesNotSeeTheOneBefore) {
  Built b(llama_like);
  Tokens tokens, changed;
  changed.tokens[13] = (changed.tokens[13] + 1) % 29;  // first document of the second sample
  autograd::Tape tape(b.arena, b.threads, false);
  const auto a = b.model->logits(tape, tokens.batch(), {}), c = b.model->logits(tape, changed.batch(), {});
  const auto row = [](const autograd::Var& of, std::size_t r) {
    return std::vector<float>(of.floats().begin() + static_cast<std::ptrdiff_t>(r * 29),
                              of.floats().begin() + static_cast<std::ptrdiff_t>((r + 1) * 29));
  };
  EXPECT_NE(row(a, 16), row(c, 16));
  EXPECT_EQ(row(a, 17), row(c, 17));
}

TEST(GptModel, WrongOptionsAreRefusedEachWithItsSentence) {
  GptOptions o;
  o.num_layers = 2;
  o.hidden_size = 10;
  o.num_attention_heads = 4;
  o.max_position_embeddings = 8;
  const auto found = broken_rules(o, 16);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].option, "num_attention_heads");
  EXPECT_EQ(found[1].message, "max_position_embeddings is 8, but seq_length is 16");
}

TEST(ChooseToken, CutsByTemperatureTopKAndTopP) {
  const std::vector<float> logits = {1, 3, 2, 3, -5};
  const auto seen = [&](const Sampling& s) {
    std::set<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < 300; ++i) tokens.insert(choose_token(logits, s, 0, i));
    return tokens;
  };
  EXPECT_EQ(seen({0, 0, 1, 1}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(seen({1, 2, 1, 1}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(seen({1, 0, 0.7, 1}), (std::set<std::int32_t>{1, 3}));  // each has 0.40 of the probability
  EXPECT_EQ(seen({1, 3, 1, 1}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(seen({100, 0, 1, 1}).size(), 5u);
}

TEST(ChooseToken, DrawsInProportionToTheProbabilities) {
  const std::vector<float> logits = {0, std::log(3.0F)};
  int ones = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) ones += choose_token(logits, {1, 0, 1, 42}, 1, i);
  EXPECT_NEAR(ones / 4000.0, 0.75, 4 * std::sqrt(0.75 * 0.25 / 4000));  // four standard deviations
}

TEST(Generate, ARepetitionPenaltyMakesTokensOfTheTextLessLikely) {
  Built b("hidden_dropout_rate:0 attention_dropout_rate:0 init_method_std:0.5");
  autograd::Tape tape(b.arena, b.threads, false);
  const std::vector<std::int32_t> prompt = {3, 17, 8, 3};
  std::vector<std::int32_t> made;
  generate(*b.model, tape, prompt, {.temperature = 0, .repetition_penalty = 3}, {6, {}, 29}, 0,
           [&](std::int32_t token) { made.push_back(token); });
  auto text = prompt;
  for (const auto token : made) {
    std::vector<float> logits;
    {
      auto cache = b.model->make_cache(1, 12);
      const auto next = b.model->next_logits(tape, text, std::ssize(text), cache);
      logits.assign(next.floats().begin(), next.floats().end());
    }
    tape.clear();
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (std::ranges::find(text, static_cast<std::int32_t>(i)) != text.end())
        logits[i] = logits[i] < 0 ? logits[i] * 3 : logits[i] / 3;
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin()) << text.size();
    text.push_back(token);
  }
  EXPECT_EQ(made.size(), 6U);
}

/// Prompts of other lengths, a stop token that ends some texts early, windows of attention, and drawn tokens.
TEST(Generate, PromptsTogetherGetTheTokensThatEachGetsAlone) {
  const std::vector<std::vector<std::int32_t>> texts = {{1, 2, 3, 4, 5}, {7}, {9, 8}, {1, 2, 3}};
  const std::vector<Prompt> prompts(texts.begin(), texts.end());
  for (const auto* words : {gpt2_like, llama_like}) {
    Built b(words);
    autograd::Tape tape(b.arena, b.threads, false);
    for (const Sampling sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 0, .repetition_penalty = 3},
                                    Sampling{.temperature = 2, .seed = 5}}) {
      GenerationLimits limits{8, {}, 29};
      for (const bool stops : {false, true}) {
        std::vector<std::vector<std::int32_t>> alone(texts.size()), together(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i)
          generate(*b.model, tape, prompts[i], sampling, limits, 3, [&](std::int32_t t) { alone[i].push_back(t); });
        ASSERT_TRUE(may_be_together(*b.model, prompts, limits));
        generate_together(*b.model, tape, prompts, sampling, limits, 3,
                          [&](std::size_t i, std::int32_t token) { together[i].push_back(token); });
        EXPECT_EQ(together, alone) << words << ", temperature " << sampling.temperature << ", stops " << stops;
        if (!stops) limits.stop_tokens = {alone[0][3], alone[1][0]};
      }
    }
    EXPECT_FALSE(may_be_together(*b.model, prompts, {9, {}, 29}));  // 12 positions
    EXPECT_FALSE(may_be_together(*b.model, std::span(prompts).first(1), {8, {}, 29}));
  }
}

TEST(Generate, StopsAtTheStopTokenAndWhereThePositionsEnd) {
  Built b(gpt2_like);
  autograd::Tape tape(b.arena, b.threads, false);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  std::vector<std::int32_t> text;
  const auto told = [&](std::int32_t token) { text.push_back(token); };
  EXPECT_EQ(generate(*b.model, tape, prompt, {0, 0, 1, 1}, {100, {}, 29}, 0, told),
            10);  // 12 positions, and one token after the last
  const auto stop = text[4];
  const auto before = std::find(text.begin(), text.end(), stop) - text.begin();
  text.clear();
  EXPECT_EQ(generate(*b.model, tape, prompt, {0, 0, 1, 1}, {100, {-1, stop}, 29}, 0, told), before);
  EXPECT_THROW(generate(*b.model, tape, {}, {}, {1, {}, 29}, 0, told), ConfigError);
  const std::vector<std::int32_t> beyond = {29};
  EXPECT_THROW(generate(*b.model, tape, beyond, {}, {1, {}, 29}, 0, told), ConfigError);
}

TEST(Generate, AModelWhoseWeightsAreNotFiniteIsRefused) {
  Built b(gpt2_like);
  autograd::Tape tape(b.arena, b.threads, false);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  for (auto* parameter : b.model->parameters())
    if (parameter->name == "decoder.final_layernorm.weight")
      parameter->leaf.value.floats()[0] = std::numeric_limits<float>::quiet_NaN();
  int told = 0;
  EXPECT_THROW(generate(*b.model, tape, prompt, {0, 0, 1, 1}, {100, {}, 29}, 0, [&](std::int32_t) { ++told; }), Error);
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace tessera::model
