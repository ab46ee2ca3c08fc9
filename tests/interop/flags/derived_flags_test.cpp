// Flags that say something only together with others, and words that say several options.
#include "framework/interop/flags/derived_flags.h"

#include <gtest/gtest.h>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"
#include "tests/tree.h"

namespace tessera::flags {
namespace {

using Words = std::vector<std::string>;

struct Converted {
  options::Value recipe;
  std::string problems;
  std::string at(const std::string& option) const {
    const auto* value = recipe.at(option);
    return value ? text(*value) : "absent";
  }
};

Converted convert(Words argv, const std::string& table = "mindspeed-llm") {
  const Words usual = {"--num-layers", "4", "--ffn-hidden-size", "64", "--num-experts", "8"};
  argv.insert(argv.begin(), usual.begin(), usual.end());
  options::Report report;
  Converted out;
  out.recipe = FlagTable::named(table, options::Mappings()).convert(argv, recipe::all_facts({}), report);
  for (const auto& finding : report.findings()) out.problems += options::text_of(finding) + "\n";
  return out;
}

TEST(DerivedFlags, SharedExpertsAreAsWideAsThatManyExperts) {
  const std::string width = "moe_config.moe_shared_expert_intermediate_size";
  EXPECT_EQ(convert({"--n-shared-experts", "2"}).at(width), "128");
  EXPECT_EQ(convert({"--n-shared-experts", "2", "--moe-intermediate-size", "24"}).at(width), "48");
  EXPECT_EQ(convert({"--moe-ffn-hidden-size", "10", "--n-shared-experts", "3"}).at(width), "30");
  EXPECT_EQ(convert({"--n-shared-experts", "0"}).at(width), "absent");
  EXPECT_NE(convert({"--n-shared-experts", "x"}).problems.find("not a whole number"), std::string::npos);
}

TEST(DerivedFlags, FactorsOfLongropeAreNumbersBetweenCommas) {
  const std::string m = "model_config.rope_scaling_";
  const auto found = convert({"--rope-scaling-type", "longrope", "--long-factor", "1.0,2.5", "--short-factor",
                              "1.0,1.5", "--long-mscale", "1.2", "--short-mscale", "1.2"});
  EXPECT_EQ(found.problems, "");
  EXPECT_EQ(found.at(m + "type"), "longrope");
  EXPECT_EQ(found.at(m + "long_factor"), "[1.0, 2.5]");
  EXPECT_EQ(found.at(m + "short_factor"), "[1.0, 1.5]");
  EXPECT_EQ(found.at(m + "attention_factor"), "1.2");
  EXPECT_NE(convert({"--long-mscale", "1.2", "--short-mscale", "1.3"}).problems.find("both must be the same"),
            std::string::npos);
}

TEST(DerivedFlags, TheFirstLayersAreDense) {
  const std::string freq = "moe_config.moe_layer_freq";
  const auto at = [&](const Words& argv) { return convert(argv).at(freq); };
  EXPECT_EQ(at({"--first-k-dense-replace", "1"}), "[0, 1, 1, 1]");
  EXPECT_EQ(at({"--first-k-dense-replace", "2", "--moe-layer-freq", "-1"}), "[0, 0, 1, 1]");
  EXPECT_EQ(at({"--moe-layer-freq", "2", "--first-k-dense-replace", "1"}), "[0, 0, 1, 0]");
  EXPECT_EQ(at({"--first-k-dense-replace", "-1", "--moe-layer-freq", "-1"}), "-1");
  EXPECT_EQ(at({"--first-k-dense-replace", "0"}), "1");
  EXPECT_NE(convert({"--first-k-dense-replace", "4"}).problems.find("no layer with experts"), std::string::npos);
}

TEST(DerivedFlags, ExpertsOverTensorRanksAreMoreExpertRanks) {
  const auto found =
      convert({"--moe-tp-extend-ep", "--tensor-model-parallel-size", "4", "--expert-model-parallel-size", "2"});
  EXPECT_EQ(found.at("parallel_config.expert_model_parallel_size"), "8");
  EXPECT_EQ(found.at("parallel_config.expert_tensor_parallel_size"), "1");
  // The dispatcher of MindSpeed-LLM's name is refused with other sizes than its own.
  EXPECT_EQ(convert({"--moe-tp-extend-ep", "--tensor-model-parallel-size", "4", "--moe-token-dispatcher-type",
                     "alltoall_seq"})
                .at("moe_config.moe_token_dispatcher_type"),
            "alltoall");
}

TEST(DerivedFlags, TheSequenceLossJoinsARouterWithoutAnother) {
  const std::string type = "moe_config.moe_router_load_balancing_type";
  const Words none = {"--moe-router-load-balancing-type", "none", "--seq-aux"}, loss = {"--moe-aux-loss-coeff", "1e-3"};
  const auto both = [](Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(convert(both(none, loss)).at(type), "seq_aux_loss");
  EXPECT_EQ(convert(none).at(type), "none");
  EXPECT_EQ(convert(both({"--seq-aux"}, loss)).at(type), "aux_loss");
  const auto refused = convert(both(both(none, loss), {"--moe-router-enable-expert-bias"}));
  EXPECT_NE(refused.problems.find("adds the bias to the scores"), std::string::npos) << refused.problems;
}

TEST(DerivedFlags, AWordSaysSeveralOptions) {
  const std::string pre = "moe_config.moe_router_pre_softmax", balance = "--moe-router-load-balancing-type";
  const auto plain = convert({balance, "softmax_topk"});
  EXPECT_EQ(plain.at("moe_config.moe_router_load_balancing_type"), "none");
  EXPECT_EQ(plain.at(pre), "true");
  EXPECT_EQ(convert({balance, "softmax_topk", "--norm-topk-prob"}).at(pre), "false");
  EXPECT_EQ(convert({"--norm-topk-prob", balance, "softmax_topk"}).at(pre), "false");
  EXPECT_NE(convert({balance, "sparsemixer_topk"}).problems.find("draws experts at random"), std::string::npos);
  EXPECT_NE(convert({"--moe-router-score-function", "sqrtsoftplus"}).problems.find("softmax or sigmoid"),
            std::string::npos);
}

TEST(DerivedFlags, ScriptsThatTuneModelsConvertInBothWordsForRewardModels) {
  for (const auto* word : {"rm", "orm"}) {
    const auto one = convert({"--stage", word, "--variable-seq-lengths"});
    EXPECT_EQ(one.at("training_config.stage"), "rm");
    EXPECT_EQ(one.at("model_config.score_head"), "true");
    EXPECT_EQ(one.problems, "");
  }
}

TEST(DerivedFlags, AModuleOfLayersIsOptionsOfOursOrRefusedByName) {
  const auto spec = [](const std::string& module) {
    return convert({"--spec", "mindspeed_llm.tasks.models.spec." + module, "layer_spec"});
  };
  EXPECT_EQ(spec("qwen3_spec").problems, "");
  EXPECT_EQ(spec("qwen3_spec").at("model_config.spec"), "[mindspeed_llm.tasks.models.spec.qwen3_spec, layer_spec]");
  EXPECT_EQ(spec("gemma2_spec").at("model_config.use_sandwich_norm"), "true");
  EXPECT_EQ(spec("deepseek_spec").at("model_config.multi_latent_attention"), "true");
  for (const std::string other : {"longcat_spec", "never_heard_of_spec"})
    EXPECT_NE(spec(other).problems.find(other), std::string::npos) << spec(other).problems;
}

TEST(DerivedFlags, EveryRuleOfATableIsKnown) {
  for (const auto& file : options::Mappings().names()) {
    if (file.rfind("flags/", 0) != 0) continue;
    const auto table = FlagTable::from(file.substr(6), options::Mappings());
    for (const auto& row : table.rows()) {
      if (row.kind != FlagRow::Kind::derived) continue;
      EXPECT_NE(describe_rule(row.rule), "") << row.flag;
    }
  }
}

}  // namespace
}  // namespace tessera::flags
