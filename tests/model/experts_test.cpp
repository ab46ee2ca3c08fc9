// Mixtures of experts, multi-latent attention and multi-token prediction within a model.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/built.h"

namespace tessera::model {
namespace {

const std::string base =
    "position_embedding_type:rope normalization:RMSNorm hidden_act:swiglu add_bias_linear:false ffn_hidden_size:12 "
    "init_method_std:0.3 untie_embeddings_and_output_weights:true ";
const std::string experts = base + "num_experts:4 moe_aux_loss_coeff:0.2 moe_z_loss_coeff:0.1 ";
const std::string latent =
    "multi_latent_attention:true q_lora_rank:6 kv_lora_rank:8 qk_head_dim:4 qk_pos_emb_head_dim:2 v_head_dim:3 "
    "qk_layernorm:true ";

/// The objective of a training pass: losses of tokens, and those that the log has, with their weights.
struct RouterObjective {
  double seed = 0.7;               ///< of auxiliary losses and means
  double aux = 0.2, z = 0.1;       ///< coefficients
  double prediction_weight = 0.1;  ///< of each prediction's mean loss

  double of(const autograd::LossSum& loss, const nn::AuxiliaryLog& log) const {
    double sum = loss.sum;
    for (std::int64_t i = 0; i < log.extents().layers; ++i)
      sum += seed * (aux * log.layer(i).aux_loss + z * log.layer(i).z_loss);
    for (std::int64_t k = 0; k < log.extents().predictions; ++k)
      sum += seed * prediction_weight * log.prediction_loss(k);
    return sum;
  }
};

double objective(Built& b, const Tokens& tokens, const RouterObjective& o, autograd::Tape& tape,
                 nn::AuxiliaryLog& log) {
  ForwardMode mode;
  mode.training = true;
  mode.objective = &mean_cross_entropy();
  mode.share.scale = 23;  // as many tokens count, so the seed of their sum is 1
  mode.auxiliary_seed = o.seed;
  mode.log = &log;
  log.clear();
  return o.of(b.model->loss(tape, tokens.batch(), mode).total, log);
}

class EveryObjective : public testing::TestWithParam<std::pair<std::string, RouterObjective>> {};
INSTANTIATE_TEST_SUITE_P(
    Gpt, EveryObjective,
    testing::Values(
        std::pair(experts, RouterObjective()),
        std::pair(experts + "moe_router_load_balancing_type:seq_aux_loss", RouterObjective()),
        std::pair(experts + "moe_router_score_function:sigmoid moe_router_topk_scaling_factor:2", RouterObjective()),
        std::pair(experts + "moe_input_jitter_eps:0.3 moe_router_dtype:fp64 moe_shared_expert_intermediate_size:6 "
                            "moe_shared_expert_gate:true",
                  RouterObjective()),
        std::pair(base + "mtp_num_layers:2 mtp_loss_scaling_factor:0.2", RouterObjective()),
        std::pair(base + latent + "mtp_num_layers:1 num_experts:4 moe_router_pre_softmax:true", RouterObjective())));

TEST_P(EveryObjective, HasTheGradientThatThePassComputes) {
  Built b(GetParam().first);
  const auto& o = GetParam().second;
  const Tokens tokens;
  nn::AuxiliaryLog log(b.model->auxiliary());
  autograd::Tape tape(b.arena, b.threads, true);
  objective(b, tokens, o, tape, log);
  tape.backward();
  tape.clear();
  double square = 0;
  for (const double g : b.grads) square += g * g;
  const auto moved = [&](double step) {
    const auto before = b.values;
    for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] += static_cast<float>(step * b.grads[i]);
    autograd::Tape again(b.arena, b.threads, true);  // losses are reported by passes that record
    const auto value = objective(b, tokens, o, again, log);
    again.clear();
    b.values = before;
    return value;
  };
  const auto slope = [&](double step) { return (moved(step) - moved(-step)) / (2 * step * square); };
  const double step = 4e-3 / std::sqrt(square);
  // Of two steps the term of third order cancels.
  EXPECT_NEAR((4 * slope(step / 2) - slope(step)) / 3, 1, 1e-2);
}

// With equal scores an expert's mean score is 1 / E, and E / (K T^2) sum_e (T / E) count_e is 1 whatever is chosen.
TEST(Experts, TheBalanceLossOfEqualScoresIsOneForEveryTopk) {
  for (const auto* balance : {"aux_loss", "seq_aux_loss"})
    for (const auto* topk : {"1 moe_router_pre_softmax:true", "2", "3"}) {
      Built b(experts + "moe_router_load_balancing_type:" + balance + " moe_router_topk:" + topk);
      std::fill(b.values.begin(), b.values.end(), 0.0F);
      nn::AuxiliaryLog log(b.model->auxiliary());
      autograd::Tape tape(b.arena, b.threads, true);
      objective(b, Tokens(), {}, tape, log);
      tape.clear();
      for (std::int64_t layer = 0; layer < log.extents().layers; ++layer)
        EXPECT_NEAR(log.layer(layer).aux_loss, 1, 1e-6) << balance << " of " << topk;
    }
}

TEST(Experts, RecomputingChangesNoBitAndReportsOnce) {
  const auto usual = experts + latent + "mtp_num_layers:1 moe_expert_capacity_factor:0.7 moe_input_jitter_eps:0.2 ";
  std::vector<std::vector<float>> grads;
  std::vector<std::vector<double>> logs;
  for (const auto* how :
       {"", "recompute_granularity:full recompute_method:uniform recompute_num_layers:1",
        "recompute_granularity:selective recompute_modules[0]:moe recompute_modules[1]:core_attn",
        "recompute_granularity:selective recompute_modules[0]:mla_up_proj",
        "recompute_granularity:selective recompute_modules[0]:mla_up_proj recompute_modules[1]:core_attn",
        "recompute_granularity:selective recompute_modules[0]:layernorm recompute_activation_function:true",
        "recompute_norm:true recompute_activation_function:true", "moe_layer_recompute:true"}) {
    Built b(usual + how);
    const Tokens tokens;
    nn::AuxiliaryLog log(b.model->auxiliary());
    autograd::Tape tape(b.arena, b.threads, true);
    objective(b, tokens, {}, tape, log);
    tape.backward();
    tape.clear();
    grads.push_back(b.grads);
    logs.emplace_back(log.values().begin(), log.values().end());
  }
  for (std::size_t i = 1; i < grads.size(); ++i) {
    EXPECT_EQ(grads[0], grads[i]) << i;
    EXPECT_EQ(logs[0], logs[i]) << i;
  }
}

TEST(Experts, OfAModelAreReportedByTheLayersThatHaveSome) {
  Built b(experts + "moe_layer_freq:([0]*1+[1]*1) moe_expert_capacity_factor:0.5");
  const Tokens tokens;
  nn::AuxiliaryLog log(b.model->auxiliary());
  autograd::Tape tape(b.arena, b.threads, true);
  objective(b, tokens, {}, tape, log);
  tape.clear();
  EXPECT_EQ(log.layer(0).reports, 0);
  ASSERT_EQ(log.layer(1).reports, 1);
  double chosen = 0, kept = 0;
  for (const auto count : log.layer(1).chosen) chosen += count;
  for (const auto count : log.layer(1).kept) {
    EXPECT_LE(count, 6);  // ceil(24 tokens * 2 choices / 4 experts * 0.5)
    kept += count;
  }
  EXPECT_EQ(chosen, 48);
  EXPECT_LT(kept, chosen);
  EXPECT_EQ(log.aux_loss(), log.layer(1).aux_loss);
  EXPECT_GT(log.z_loss(), 0);
}

TEST(Experts, TheirLoadIsCountedOnceForTheBiasAndNotInEvaluation) {
  const auto routed = base + "num_experts:4 moe_router_score_function:sigmoid moe_router_enable_expert_bias:true " +
                      "moe_expert_capacity_factor:0.7 ";
  for (const auto* how : {"", "recompute_granularity:full recompute_method:uniform recompute_num_layers:1"}) {
    Built b(routed + how);
    const Tokens tokens;
    nn::AuxiliaryLog log(b.model->auxiliary());
    ForwardMode mode;
    mode.log = &log;
    autograd::Tape looking(b.arena, b.threads, false), tape(b.arena, b.threads, true);
    b.model->loss(looking, tokens.batch(), mode);
    EXPECT_EQ(log.layer(0).reports, 0);
    objective(b, tokens, {}, tape, log);
    tape.backward();
    tape.clear();
    std::int64_t layer = 0;
    for (const auto* p : b.model->parameters()) {
      if (p->role != ParameterRole::expert_bias) continue;
      const auto kept = log.layer(layer++).kept;
      const auto all = kept[0] + kept[1] + kept[2] + kept[3];
      for (std::size_t e = 0; e < 4; ++e) EXPECT_EQ(p->leaf.grad().floats()[e], 4 * kept[e] - all) << p->name << how;
    }
    EXPECT_EQ(layer, 2);
  }
}

TEST(Experts, TheBiasChangesTheChoiceButNotTheWeights) {
  Built b(base + "num_layers:1 num_experts:4 moe_router_score_function:sigmoid moe_router_enable_expert_bias:true " +
          "moe_router_topk:1");
  const Tokens tokens;
  for (auto* p : b.model->parameters())
    if (p->role == ParameterRole::expert_bias) p->leaf.value.floats()[2] = 10;
  std::vector<float> weights, logits;
  const nn::Tap tap = [&](std::string_view name, const Tensor& value) {
    if (name == "decoder.layers.0.mlp.router") logits.assign(value.floats().begin(), value.floats().end());
    if (name == "decoder.layers.0.mlp.router.weights") weights.assign(value.floats().begin(), value.floats().end());
  };
  ForwardMode mode;
  mode.tap = &tap;
  autograd::Tape tape(b.arena, b.threads, false);
  b.model->loss(tape, tokens.batch(), mode);
  ASSERT_EQ(weights.size(), 96U);
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(weights[i], i % 4 == 2 ? 1 / (1 + std::exp(-logits[i])) : 0, 1e-6) << i;
}

/// The value of `name` in a pass.
std::vector<float> shown(Built& b, const Tokens& tokens, const std::string& name, bool training) {
  std::vector<float> found;
  const nn::Tap tap = [&](std::string_view of, const Tensor& value) {
    if (of == name) found.assign(value.floats().begin(), value.floats().end());
  };
  ForwardMode mode;
  mode.training = training;
  mode.tap = &tap;
  mode.seed = 3;
  autograd::Tape tape(b.arena, b.threads, false);
  b.model->loss(tape, tokens.batch(), mode);
  tape.clear();
  return found;
}

const std::string first_router = "decoder.layers.0.mlp.router";

TEST(Experts, JitterChangesWhatTheRouterSeesInTrainingAlone) {
  const auto still = experts + "hidden_dropout_rate:0 attention_dropout_rate:0 ";
  Built plain(still), noisy(still + "moe_input_jitter_eps:0.1");
  Tokens tokens;
  const auto usual = shown(plain, tokens, first_router, true);
  EXPECT_EQ(usual, shown(noisy, tokens, first_router, false));
  const auto jittered = shown(noisy, tokens, first_router, true);
  EXPECT_NE(usual, jittered);
  EXPECT_EQ(jittered, shown(noisy, tokens, first_router, true));
  tokens.ids[0] = 77;  // other numbers for another sample, the same ones for the other
  const auto other = shown(noisy, tokens, first_router, true);
  for (std::size_t i = 0; i < usual.size(); ++i) {
    if (i < usual.size() / 2)
      EXPECT_NE(other[i], jittered[i]) << i;
    else
      EXPECT_EQ(other[i], jittered[i]) << i;
  }
}

TEST(Experts, ForcedBalanceTakesNoLogitIntoAccount) {
  Built b(experts + "moe_router_force_load_balancing:true");
  const Tokens tokens;
  const auto before = shown(b, tokens, first_router, true);
  for (auto& value : b.values) value *= 2;
  EXPECT_EQ(before, shown(b, tokens, first_router, true));
  EXPECT_EQ(before, shown(b, tokens, first_router, false));
  EXPECT_NE(before, shown(b, tokens, "decoder.layers.1.mlp.router", true));
}

TEST(Experts, ARouterIn64BitsDiffersFromOneIn32BitsByRoundingOnly) {
  const auto of = [](const std::string& words) {
    Built b(experts + words);
    return shown(b, Tokens(), first_router, true);
  };
  const auto narrow = of("moe_router_dtype:fp32"), wide = of("moe_router_dtype:fp64");
  EXPECT_NE(narrow, wide);
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 1e-6);  // sums of 16 products of size 1
}

TEST(Experts, AnOutputThatIsNotFiniteIsShownWithItsLayerAndExpert) {
  Built b(experts);
  for (auto* p : b.model->parameters())
    if (p->name == "decoder.layers.1.mlp.experts.local_experts.2.linear_fc2.weight")
      for (auto& w : p->leaf.value.floats()) w = 3e38F;
  std::string first;
  const nn::Tap tap = [&](std::string_view name, const Tensor& value) {
    const auto values = value.floats();
    const bool finite = std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    if (first.empty() && !finite) first = name;
  };
  ForwardMode mode;
  mode.tap = &tap;
  autograd::Tape tape(b.arena, b.threads, false);
  const Tokens tokens;
  b.model->loss(tape, tokens.batch(), mode);
  tape.clear();
  EXPECT_EQ(first, "decoder.layers.1.mlp.experts.local_experts.2");
}

TEST(Predictions, IgnoreTheLabelOfATokenThatTheMaskLeavesOut) {
  Built b(base + "mtp_num_layers:1");
  const auto loss = [&](std::int32_t label, float counts) {
    Tokens tokens;
    tokens.labels[5] = label;
    tokens.mask[5] = counts;
    nn::AuxiliaryLog log(b.model->auxiliary());
    autograd::Tape tape(b.arena, b.threads, true);
    objective(b, tokens, {}, tape, log);
    tape.clear();
    return log.prediction_loss(0);
  };
  EXPECT_EQ(loss(1, 0), loss(2, 0));  // mask and labels move together
  EXPECT_NE(loss(1, 1), loss(2, 1));
}

std::vector<std::string> names_of(const std::string& words) {
  Built b(words);
  std::vector<std::string> names;
  for (const auto* p : b.model->parameters())
    if (p->name.rfind("decoder.layers.0", 0) != 0) names.push_back(text(p->name, " ", p->global_shape));
  return names;
}

TEST(Experts, LatentAttentionAndPredictionHaveMegatronsNamesAndShapes) {
  EXPECT_EQ(
      names_of(base + latent + "num_layers:1 num_experts:2 moe_shared_expert_intermediate_size:5 mtp_num_layers:1 " +
               "moe_shared_expert_gate:true"),
      (std::vector<std::string>{
          "embedding.word_embeddings.weight [29, 16]",
          "decoder.final_layernorm.weight [16]",
          "mtp.layers.0.enorm.weight [16]",
          "mtp.layers.0.hnorm.weight [16]",
          "mtp.layers.0.eh_proj.weight [16, 32]",
          "mtp.layers.0.transformer_layer.input_layernorm.weight [16]",
          "mtp.layers.0.transformer_layer.self_attention.linear_proj.weight [16, 12]",
          "mtp.layers.0.transformer_layer.self_attention.linear_q_down_proj.weight [6, 16]",
          "mtp.layers.0.transformer_layer.self_attention.linear_q_up_proj.weight [24, 6]",
          "mtp.layers.0.transformer_layer.self_attention.linear_kv_down_proj.weight [10, 16]",
          "mtp.layers.0.transformer_layer.self_attention.linear_kv_up_proj.weight [28, 8]",
          "mtp.layers.0.transformer_layer.self_attention.q_layernorm.weight [6]",
          "mtp.layers.0.transformer_layer.self_attention.kv_layernorm.weight [8]",
          "mtp.layers.0.transformer_layer.pre_mlp_layernorm.weight [16]",
          "mtp.layers.0.transformer_layer.mlp.router.weight [2, 16]",
          "mtp.layers.0.transformer_layer.mlp.experts.local_experts.0.linear_fc1.weight [24, 16]",
          "mtp.layers.0.transformer_layer.mlp.experts.local_experts.0.linear_fc2.weight [16, 12]",
          "mtp.layers.0.transformer_layer.mlp.experts.local_experts.1.linear_fc1.weight [24, 16]",
          "mtp.layers.0.transformer_layer.mlp.experts.local_experts.1.linear_fc2.weight [16, 12]",
          "mtp.layers.0.transformer_layer.mlp.shared_experts.gate_weight [1, 16]",
          "mtp.layers.0.transformer_layer.mlp.shared_experts.linear_fc1.weight [10, 16]",
          "mtp.layers.0.transformer_layer.mlp.shared_experts.linear_fc2.weight [16, 5]",
          "mtp.layers.0.final_layernorm.weight [16]",
          "output_layer.weight [29, 16]",
      }));
}

TEST(Prediction, OfFurtherTokensIsNotComputedInEvaluation) {
  Built b(base + "mtp_num_layers:1"), without(base);
  const Tokens tokens;
  nn::AuxiliaryLog log(b.model->auxiliary());
  ForwardMode mode;
  mode.log = &log;
  autograd::Tape tape(b.arena, b.threads, false);
  const auto loss = b.model->loss(tape, tokens.batch(), mode).total.sum;
  EXPECT_EQ(log.prediction_loss(0), 0);
  autograd::Tape other(without.arena, without.threads, false);
  EXPECT_EQ(loss, without.model->loss(other, tokens.batch(), {}).total.sum);
}

/// Messages of a model with these options.
std::vector<std::string> broken(const std::string& words) {
  try {
    const Built b(words);
    return {};
  } catch (const Error& error) {
    return {error.what()};
  }
}

TEST(Experts, WrongOptionsAreRefusedEachWithItsSentence) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"num_experts:2 moe_router_topk:3", "moe_router_topk is 3, but there are 2 experts"},
      {"num_experts:4 moe_router_topk:1", "the softmax over one expert is always 1"},
      {"num_experts:4 mlp_has_bias:true moe_shared_expert_intermediate_size:8", "the shared expert has no biases"},
      {"num_experts:4 moe_layer_freq:[1,0,1]", "moe_layer_freq lists 3 layers, but num_layers is 2"},
      {"num_experts:4 moe_router_group_topk:1", "but moe_router_num_groups is missing"},
      {"num_experts:4 moe_router_group_topk:1 moe_router_num_groups:3", "which does not divide the 4 experts"},
      {"num_experts:4 moe_router_group_topk:1 moe_router_num_groups:4", "of 4 groups have only 1 experts"},
      {"num_experts:4 moe_pad_expert_input_to_capacity:true", "needs moe_expert_capacity_factor"},
      {"num_experts:4 moe_router_load_balancing_type:sinkhorn moe_aux_loss_coeff:1", "which has no such loss"},
      {"num_experts:4 moe_router_load_balancing_type:sinkhorn moe_expert_capacity_factor:1", "balanced without it"},
      {"num_experts:4 moe_apply_probs_on_input:true", "needs moe_router_topk 1, which is 2"},
      {"num_experts:65536 num_layers:5", "is 327680; at most 262144 experts"},
      {latent + "group_query_attention:true num_query_groups:2", "num_query_groups is 2"},
      {latent + "sliding_window:4", "there is an attention window"},
      {"position_embedding_type:learned_absolute mtp_num_layers:1", "position_embedding_type is learned_absolute"}};
  for (const auto& [words, expected] : all) {
    const auto found = broken(base + words);
    ASSERT_EQ(found.size(), 1U) << words << " was taken";
    EXPECT_NE(found[0].find(expected), std::string::npos) << words << ": " << found[0];
  }
}

TEST(LayerFrequency, IsReadAsMegatronLMEvaluatesIt) {
  const auto read = [](const std::string& words) {
    LayerFrequency out;
    const auto good = options::OptionType<LayerFrequency>::read(options::Value::of(words, {}), out);
    std::string layers = good ? "" : "refused";
    for (std::int64_t i = 0; good && i < 4; ++i)
      layers +=
          out.list.empty() || i < static_cast<std::int64_t>(out.list.size()) ? (out.has_experts(i) ? "E" : "-") : "";
    return layers;
  };
  EXPECT_EQ(read("1"), "EEEE");
  EXPECT_EQ(read("-1"), "EEEE");
  EXPECT_EQ(read("2"), "E-E-");
  EXPECT_EQ(read("([0]*1+[1]*3)"), "-EEE");
  EXPECT_EQ(read("[0]+([0,1])*1+[1]"),
            "-"
            "-EE");
  EXPECT_EQ(read("2*[0,1]"), "-E-E");
  for (const auto* bad : {"0", "[2]", "[]", "[0", "[0]*", "x", "[0]*99999", "[1]-[0]", "((((", "[1]] "})
    EXPECT_EQ(read(bad), "refused") << bad;
}

}  // namespace
}  // namespace tessera::model
