#include "framework/interop/flags/megatron_arguments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/interop/flags/megatron_rules.h"
#include "tests/interop/flags/tables.h"

namespace tessera {
namespace {

using LibraryJson = nlohmann::json;

/// A small run of theirs on four processes; `more` follows, so it wins.
Lines run(const Lines& more) {
  return with(with(small_run(), {"--num-layers", "8", "--micro-batch-size", "2", "--global-batch-size", "32",
                                 "--train-iters", "100", "--vocab-size", "127"}),
              more);
}

LibraryJson arguments_of(const Lines& more, std::int64_t world = 4) {
  static const recipe::Registries registries;
  static const options::Facts facts = recipe::all_facts(registries);
  options::Report report;
  const auto recipe = recipe::read_recipe(megatron().convert(run(more), facts, report), registries, report);
  if (report.good()) recipe::check_ranks(recipe, world, report);
  report.must_be_good();
  const auto all = flags::megatron_arguments(recipe, world, megatron(), report);
  report.must_be_good();
  return LibraryJson::parse(all.dump());
}

/// What else `more` makes of the arguments.
LibraryJson changed_by(const Lines& more, std::int64_t world = 4) {
  const auto usual = arguments_of({}), changed = arguments_of(more, world);
  LibraryJson changes = LibraryJson::object();
  for (const auto& [name, value] : changed.items())
    if (usual.at(name) != value) changes[name] = value;
  return changes;
}

TEST(Arguments, OfAnUnderspecifiedRunAreDerived) {
  const auto a = arguments_of({});
  const LibraryJson expected = {{"ffn_hidden_size", 256},
                                {"kv_channels", 16},
                                {"encoder_num_layers", 8},
                                {"encoder_seq_length", 32},
                                {"data_parallel_size", 4},
                                {"world_size", 4},
                                {"transformer_pipeline_model_parallel_size", 1},
                                {"virtual_pipeline_model_parallel_size", nullptr},
                                {"params_dtype", "torch.float32"},
                                {"accumulate_allreduce_grads_in_fp32", false},
                                {"check_for_nan_in_loss_and_grad", true},
                                {"dataloader_type", "single"},
                                {"add_qkv_bias", true},
                                {"start_weight_decay", 0.01},
                                {"end_weight_decay", 0.01},
                                {"use_dist_ckpt", true},
                                {"consumed_train_samples", 0},
                                {"no_load_optim", nullptr},
                                {"lr_decay_iters", nullptr},
                                {"adam_beta2", 0.999},
                                {"tokenizer_type", "NullTokenizer"}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(a.value(name, LibraryJson("missing")), value) << name;
}

struct Change {
  Lines flags;
  LibraryJson expected;
  std::int64_t world = 4;
};

/// Single flags and what they change, derived by hand from Megatron-LM's rules.
std::vector<Change> model_changes() {
  return {
      {{"--num-layers", "12"}, {{"num_layers", 12}, {"encoder_num_layers", 12}}},
      {{"--hidden-size", "96"},
       {{"hidden_size", 96}, {"ffn_hidden_size", 384}, {"kv_channels", 24}, {"moe_ffn_hidden_size", 384}}},
      {{"--num-attention-heads", "8"}, {{"num_attention_heads", 8}, {"kv_channels", 8}}},
      {{"--kv-channels", "32"}, {{"kv_channels", 32}}},
      {{"--ffn-hidden-size", "100"}, {{"ffn_hidden_size", 100}, {"moe_ffn_hidden_size", 100}}},
      // trunc(64 * 8 / 3 / 64) * 64
      {{"--swiglu"}, {{"swiglu", true}, {"ffn_hidden_size", 128}, {"moe_ffn_hidden_size", 128}}},
      {{"--seq-length", "16"}, {{"seq_length", 16}, {"encoder_seq_length", 16}}},
      {{"--max-position-embeddings", "64"}, {{"max_position_embeddings", 64}}},
      {{"--group-query-attention"}, {{"group_query_attention", true}}},
      {{"--disable-bias-linear"}, {{"add_bias_linear", false}, {"add_qkv_bias", false}, {"bias_gelu_fusion", false}}},
      {{"--disable-bias-linear", "--add-qkv-bias"}, {{"add_bias_linear", false}, {"bias_gelu_fusion", false}}},
      {{"--no-bias-gelu-fusion"}, {{"bias_gelu_fusion", false}}},
      {{"--normalization", "RMSNorm"}, {{"normalization", "RMSNorm"}}},
      {{"--apply-query-key-layer-scaling"},
       {{"apply_query_key_layer_scaling", true}, {"attention_softmax_in_fp32", true}}},
      {{"--attention-softmax-in-fp32"}, {{"attention_softmax_in_fp32", true}}},
      {{"--untie-embeddings-and-output-weights"}, {{"untie_embeddings_and_output_weights", true}}},
      {{"--recompute-activations"}, {{"recompute_granularity", "selective"}}},
      {{"--hidden-dropout", "0"}, {{"hidden_dropout", 0.0}}},
      {{"--init-method-std", "0.006"}, {{"init_method_std", 0.006}}}};
}

std::vector<Change> run_changes() {
  return {
      {{"--seed", "7"}, {{"seed", 7}}},
      {{"--bf16"}, {{"bf16", true}, {"params_dtype", "torch.bfloat16"}, {"accumulate_allreduce_grads_in_fp32", true}}},
      {{"--fp16"}, {{"fp16", true}, {"params_dtype", "torch.float16"}, {"check_for_nan_in_loss_and_grad", false}}},
      {{"--fp16", "--loss-scale", "8"}, {{"fp16", true}, {"params_dtype", "torch.float16"}, {"loss_scale", 8.0}}},
      {{"--micro-batch-size", "4"}, {{"micro_batch_size", 4}}},
      {{"--weight-decay", "0.1"}, {{"weight_decay", 0.1}, {"start_weight_decay", 0.1}, {"end_weight_decay", 0.1}}},
      {{"--weight-decay-incr-style", "linear", "--start-weight-decay", "0.1", "--end-weight-decay", "0.2"},
       {{"weight_decay_incr_style", "linear"}, {"start_weight_decay", 0.1}, {"end_weight_decay", 0.2}}},
      {{"--lr-decay-style", "cosine"}, {{"lr_decay_style", "cosine"}}},
      {{"--lr-decay-iters", "50"}, {{"lr_decay_iters", 50}}},
      {{"--lr-warmup-fraction", ".01"}, {{"lr_warmup_fraction", 0.01}}},
      {{"--adam-beta2", "0.95"}, {{"adam_beta2", 0.95}}},
      {{"--optimizer", "sgd"}, {{"optimizer", "sgd"}}},
      {{"--no-load-optim"}, {{"no_load_optim", true}}},
      {{"--ckpt-format", "torch"}, {{"ckpt_format", "torch"}, {"use_dist_ckpt", false}}},
      {{"--tensor-model-parallel-size", "2"},
       {{"tensor_model_parallel_size", 2}, {"data_parallel_size", 2}, {"expert_tensor_parallel_size", 2}}},
      {{"--sequence-parallel"}, LibraryJson::object()},  // nothing to share on one rank
      {{"--tensor-model-parallel-size", "2", "--sequence-parallel"},
       {{"tensor_model_parallel_size", 2},
        {"data_parallel_size", 2},
        {"expert_tensor_parallel_size", 2},
        {"sequence_parallel", true}}},
      {{"--pipeline-model-parallel-size", "2"},
       {{"pipeline_model_parallel_size", 2},
        {"transformer_pipeline_model_parallel_size", 2},
        {"data_parallel_size", 2}}},
      {{"--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "2"},
       {{"pipeline_model_parallel_size", 2},
        {"transformer_pipeline_model_parallel_size", 2},
        {"data_parallel_size", 2},
        {"num_layers_per_virtual_pipeline_stage", 2},
        {"overlap_p2p_comm", true},
        {"virtual_pipeline_model_parallel_size", 2}}},
      {{"--eval-interval", "10"}, {{"eval_interval", 10}}},
      {{}, {{"world_size", 8}, {"data_parallel_size", 8}}, 8}};
}

void expect(const std::vector<Change>& changes) {
  const auto left_out = flags::arguments_left_out(megatron());
  for (const auto& [flags, expected, world] : changes) {
    auto theirs = expected;
    for (const auto& name : left_out) theirs.erase(name);
    EXPECT_EQ(changed_by(flags, world), theirs) << (flags.empty() ? "" : flags.at(0));
  }
}

TEST(Arguments, AFlagOfTheModelChangesThemAsItChangesTheirs) { expect(model_changes()); }

TEST(Arguments, AFlagOfTheRunChangesThemAsItChangesTheirs) { expect(run_changes()); }

TEST(Arguments, OfARunInSamplesHaveNoLengthInSteps) {
  const auto argv = without(run({"--train-samples", "640", "--rampup-batch-size", "8", "8", "64"}), "--train-iters");
  options::Report report;
  const auto recipe = recipe::read_recipe(megatron().convert(argv, recipe::all_facts({}), report), {}, report);
  report.must_be_good();
  const auto all = flags::megatron_arguments(recipe, 1, megatron(), report);
  EXPECT_EQ(all.at("train_iters"), nullptr);
  EXPECT_EQ(all.at("train_samples"), 640);
  EXPECT_EQ(all.at("rampup_batch_size"), tessera::Json({"8", "8", "64"}));
}

TEST(Arguments, AValueWithoutCounterpartIsToldByItsOption) {
  options::Report report;
  auto tree = megatron().convert(run({}), recipe::all_facts({}), report);
  tree.set("optimizer_config.optimizer_type", options::Value::of("lion", {"run.yaml", 3, "", 4}));
  auto recipe = recipe::read_recipe(tree, {}, report);
  options::Report of_arguments;
  flags::megatron_arguments(recipe, 1, megatron(), of_arguments);
  ASSERT_FALSE(of_arguments.good());
  const auto first = of_arguments.problems().at(0);
  EXPECT_EQ(first.rfind("run.yaml:3: optimizer_config.optimizer_type lion has no counterpart", 0), 0u) << first;
}

/// The rules that a command line breaks, each once.
Lines broken_by(const Lines& argv, std::int64_t world = 4) {
  options::Report report;
  flags::check_megatron_rules(flags::flags_of(argv), world, megatron(), {}, report);
  Lines all;
  for (const auto& finding : report.findings()) all.push_back(finding.rule);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

TEST(MegatronRules, AreBrokenEachByACommandLine) {
  EXPECT_EQ(broken_by(run({})), Lines{});
  const std::vector<std::pair<const char*, Lines>> ways = {
      {"D1", {"--warmup", "1"}},
      {"D2", {"--checkpoint-activations"}},
      {"D6", {"--no-position-embedding"}},
      {"M1", {"--encoder-num-layers", "8"}},
      {"M4", {"--hidden-size", "66"}},
      {"M6", {"--seq-length", "64", "--position-embedding-type", "none"}},
      {"M8", {"--group-query-attention", "--tensor-model-parallel-size", "2"}},
      {"M12", {"--use-rotary-position-embeddings", "--rotary-interleaved"}},
      {"M14", {"--squared-relu"}},
      {"M18", {"--multi-latent-attention", "--use-rotary-position-embeddings"}},
      {"M22", {"--mtp-num-layers", "1"}},
      {"M28", {"--use-legacy-models"}},
      {"PAR1", {"--tensor-model-parallel-size", "8", "--num-attention-heads", "8"}},
      {"PAR4", {"--cp-comm-type", "a2a+p2p"}},
      {"PAR6", {"--num-layers", "9", "--pipeline-model-parallel-size", "2"}},
      {"PAR6", {"--num-virtual-stages-per-pipeline-rank", "2"}},
      {"PAR10", {"--tp-comm-overlap", "--sequence-parallel"}},
      {"PAR16", {"--overlap-param-gather"}},
      {"PAR18", {"--use-torch-fsdp2", "--no-gradient-accumulation-fusion"}},
      {"B1", {"--micro-batch-size", "0"}},
      {"B2", {"--global-batch-size", "12"}},
      {"B5", {"--rampup-batch-size", "8", "8", "64"}},
      {"B5", {"--lr-warmup-fraction", "0.1", "--lr-warmup-iters", "3"}},
      {"DAT3", {"--data-path", "corpus"}},
      {"O1", {"--min-lr", "1"}},
      {"O2", {"--start-weight-decay", "0.1"}},
      {"MP1", {"--bf16", "--fp16"}},
      {"MP5", {"--fp32-residual-connection"}},
      {"MP7", {"--moe-grouped-gemm"}},
      {"C3", {"--save", "out"}},
      {"REC2", {"--recompute-activations", "--recompute-num-layers", "1"}},
      {"REC3", {"--recompute-granularity", "full"}},
      {"MOE1", {"--num-experts", "2", "--disable-bias-linear", "--spec", "x", "y"}},
      {"MOE4", {"--num-experts", "2"}},
      {"DET1", {"--deterministic-mode", "--use-flash-attn"}}};
  for (const auto& [rule, flags] : ways) EXPECT_EQ(broken_by(run(flags)), Lines{rule}) << flags.at(0);
  EXPECT_EQ(broken_by(run({"--global-batch-size", "12", "--decrease-batch-size-if-needed"})), Lines{});
}

TEST(MegatronRules, OfABatchThatGrowsAreThoseOfMegatronsCalculator) {
  const auto broken = [](const Lines& ramp) {
    const auto argv = with(without(run({"--train-samples", "640", "--rampup-batch-size"}), "--train-iters"), ramp);
    return broken_by(argv, 0);
  };
  EXPECT_EQ(broken({"8", "8", "64"}), Lines{});
  for (const auto& ramp : std::vector<Lines>{{"8", "8"},         // two numbers
                                             {"0", "8", "64"},   // begins with no sample
                                             {"8", "0", "64"},   // does not grow
                                             {"8", "8", "-1"},   // ends before it begins
                                             {"40", "8", "64"},  // begins above the full size
                                             {"8", "5", "64"},   // the last increment would be a part
                                             {"32", "8", "64"},  // Megatron-LM divides by 0
                                             {"8", "8", "0"}})   // likewise
    EXPECT_EQ(broken(ramp), Lines{"B3"}) << ramp[0] << " " << ramp[1];
  EXPECT_EQ(broken({"1", "1", "64"}), Lines{"B2"});
  EXPECT_EQ(broken({"1", "1", "64", "--decrease-batch-size-if-needed"}), Lines{});
  EXPECT_EQ(broken({"8", "${STEP}", "64"}), Lines{});
}

TEST(MegatronRules, AboutWhatIsNotKnownAreNotAsked) {
  EXPECT_EQ(broken_by(run({"--pipeline-model-parallel-size", "${PP}", "--num-layers", "9"})), Lines{});
  EXPECT_EQ(broken_by(run({"--tensor-model-parallel-size", "8", "--num-attention-heads", "8"}), 0), Lines{});
}

TEST(MegatronRules, OfARecipeNameTheFlagsOfTheCommandLine) {
  const auto told = [](const Lines& more) {
    options::Report report;
    auto flags = flags::flags_of(run(more));
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i].at = {"run.sh", static_cast<int>(i) + 1, "", 9};
    flags::check_megatron_rules(flags, 4, megatron(), {}, report);
    return report.problems();
  };
  EXPECT_EQ(told({"--hidden-size", "66"}),
            Lines{"run.sh:3: --num-attention-heads is 4, which does not divide --hidden-size 66; change one, or give "
                  "--kv-channels"});
  EXPECT_EQ(
      told({"--num-experts", "2"}),
      Lines{"run.sh:17: --num-experts is 2, but the feed-forward network has biases; give --disable-bias-linear; or "
            "mlp_has_bias: true for biases of experts and routers, or false"});
  EXPECT_EQ(told({"--multi-latent-attention", "--rotary-interleaved", "--no-rope-fusion"}),
            Lines{"run.sh:17: --multi-latent-attention and --rotary-interleaved are mutually exclusive; leave "
                  "--rotary-interleaved out"});
  EXPECT_EQ(told({"--recompute-activations", "--recompute-num-layers", "1"}),
            Lines{"run.sh:18: --recompute-num-layers is given, but --recompute-granularity is selective; it is for "
                  "full; leave it out"});
}

TEST(MegatronRules, SayWhereWhatCameAndWhatToDo) {
  options::Report report;
  flags::check_megatron_rules(flags::flags_of(run({"--num-layers", "9", "--pipeline-model-parallel-size", "2"})), 4,
                              megatron(), {}, report);
  EXPECT_EQ(report.problems(),
            Lines{"--num-layers: Megatron-LM stops here: --pipeline-model-parallel-size does not divide the layers "
                  "(--num-layers 9, --pipeline-model-parallel-size 2); change one of them; a recipe of Tessera may use "
                  "uneven stages"});
}

}  // namespace
}  // namespace tessera
