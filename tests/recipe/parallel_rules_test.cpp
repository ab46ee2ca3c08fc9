#include <gtest/gtest.h>

#include "framework/base/files.h"
#include "framework/kernels/linear.h"
#include "framework/recipe/build.h"
#include "framework/recipe/layout_figures.h"
#include "tests/own_folder.h"
#include "tests/recipe/groups.h"

namespace tessera::recipe {
namespace {

const std::string least_recipe =
    "model_config: {num_layers: 8, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
    "dataset_config: {dataset_type: mock, batch_size: 2}\n"
    "training_config: {training_iters: 20}\n";

class ParallelRules : public InOwnFolder {
 protected:
  Recipe read(const Lines& sets, const std::string& more = "") {
    write("run.yaml", least_recipe + more);
    report = {};
    return read_recipe("run.yaml", sets, registries, report);
  }
  /// Lines of run.yaml's fourth line on, and `sets`.
  Lines problems(const std::string& more, const Lines& sets = {}) {
    read(sets, more);
    return report.problems();
  }
  Lines problems_on(std::int64_t world, const Lines& sets) {
    const auto recipe = read(sets);
    EXPECT_EQ(report.problems(), Lines{});
    check_ranks(recipe, world, report);
    return report.problems();
  }
  Registries registries;
  options::Report report;
};

const std::string p = "parallel_config.";

TEST_F(ParallelRules, AListOfLayersIsHeldToTheModelAtItsLine) {
  EXPECT_EQ(problems("parallel_config:\n  pipeline_model_parallel_size: 2\n  num_layer_list: [[4], [3]]\n"),
            Lines{"run.yaml:6: num_layer_list [[4], [3]] adds up to 7 layers; num_layers is 8; make it add up to 8"});
  EXPECT_EQ(problems("parallel_config:\n  pipeline_model_parallel_size: 9\n"),
            Lines{"run.yaml:5: num_layers is 8, fewer than 9 stages that each need one; give fewer stages or more "
                  "layers"});
  EXPECT_EQ(problems("parallel_config: {pipeline_model_parallel_size: 2, num_layer_list: '[[2,2],[2,2]]', "
                     "virtual_pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 3}\n"),
            Lines{});
}

TEST_F(ParallelRules, EverySizeOfARampMustFitInterleavedStages) {
  const Lines sets = {"training_config.training_iters=0",
                      "dataset_config.train_samples=1000",
                      p + "pipeline_model_parallel_size=2",
                      p + "virtual_pipeline_model_parallel_size=2",
                      "dataset_config.batch_size=1",
                      "dataset_config.global_batch_size=4",
                      "dataset_config.rampup_batch_size=[2, 1, 300]"};
  EXPECT_EQ(
      problems_on(2, sets),
      Lines{"--set dataset_config.rampup_batch_size: after 150 samples, within rampup_batch_size, a step's 3 micro "
            "batches in groups of 2 leave a last group of 1, fewer than the 2 stages; change the number of micro "
            "batches, or give "
            "microbatch_group_size_per_vp_stage"});
  EXPECT_EQ(problems_on(2, sets + Lines{"dataset_config.rampup_batch_size=[2, 2, 300]"}), Lines{});
}

TEST_F(ParallelRules, WhatContextRanksShareMustDivideAtItsLine) {
  EXPECT_EQ(problems("parallel_config:\n  context_parallel_size: 3\n"),
            Lines{"run.yaml:1: seq_length 16 is not divisible by 2 x context_parallel_size 3; give 12 or 18"});
  EXPECT_EQ(problems("parallel_config:\n  context_parallel_size: 2\n  cp_comm_type: [p2p, a2a]\n"),
            Lines{"run.yaml:6: cp_comm_type has 2 words, but num_layers is 8; give one word for all layers, or one for "
                  "each"});
  EXPECT_EQ(problems("parallel_config: {context_parallel_size: 4, cp_comm_type: a2a+p2p, ulysses_degree_in_cp: 2}\n"),
            Lines{});
  EXPECT_EQ(
      problems_on(4, {p + "context_parallel_size=3", "model_config.seq_length=18"}),
      Lines{
          "--set parallel_config.context_parallel_size: a copy of the model takes 3 processes "
          "(tensor_model_parallel_size 1 x context_parallel_size 3 x pipeline_model_parallel_size 1), but the run has "
          "4; start 3 processes or a multiple of that"});
}

TEST_F(ParallelRules, WhatRanksOfExpertsShareMustDivide) {
  const Lines experts = {"model_config.num_experts=6", "model_config.add_bias_linear=false"};
  const auto with = [&](Lines more) {
    more.insert(more.begin(), experts.begin(), experts.end());
    return more;
  };
  const auto problems_of = [&](const Lines& sets) {
    report = {};
    read(sets);
    return report.problems();
  };
  const std::string at = "--set parallel_config.expert_model_parallel_size: ";
  EXPECT_EQ(problems_of(with({p + "expert_model_parallel_size=4"})),
            Lines{at + "num_experts 6 is not divisible by expert_model_parallel_size 4; make num_experts a multiple of "
                       "4, or change expert_model_parallel_size"});
  EXPECT_EQ(problems_of({p + "expert_model_parallel_size=2"}),
            Lines{at + "expert_model_parallel_size is 2, but the model has no experts; leave it out, or give "
                       "model_config.num_experts"});
  EXPECT_EQ(problems_of(with({p + "expert_model_parallel_size=2", "training_config.fp16=true"})),
            Lines{at + "fp16 is incompatible with expert_model_parallel_size above 1; train in bf16"});
  EXPECT_EQ(
      problems_of(with({p + "expert_tensor_parallel_size=3", "model_config.ffn_hidden_size=16"})),
      Lines{"--set parallel_config.expert_tensor_parallel_size: the hidden size of an expert, moe_ffn_hidden_size "
            "16, is not divisible by expert_tensor_parallel_size 3; make it a multiple of 3, or give "
            "expert_tensor_parallel_size 1"});
  EXPECT_EQ(problems_of(with({p + "tensor_model_parallel_size=2"})),
            Lines{"--set model_config.num_experts: the model has experts and "
                  "tensor_model_parallel_size is 2, but sequence_parallel is off; give sequence_parallel true"});
  report = {};
  EXPECT_EQ(
      problems_on(6, with({p + "expert_model_parallel_size=2", p + "expert_tensor_parallel_size=2"})),
      Lines{at + "all experts of a layer take 4 processes (expert_tensor_parallel_size 2 x "
                 "expert_model_parallel_size 2), which do not divide the 6 of a pipeline stage; start 4 processes "
                 "or a multiple of that"});
}

TEST_F(ParallelRules, NumbersOutsideTheirLimitsAreNotCalculatedWith) {
  const auto all = problems(
      "parallel_config:\n  context_parallel_size: 0\nmoe_config:\n  num_experts: 4\n  moe_router_num_groups: 0\n  "
      "moe_router_group_topk: 1\n");
  EXPECT_EQ(all, (Lines{"run.yaml:5: context_parallel_size must be >= 1, is 0; give a value >= 1",
                        "run.yaml:8: moe_router_num_groups must be >= 1, is 0; give a value >= 1"}));
}

TEST_F(ParallelRules, WhatTensorRanksShareMustDivideAtItsLine) {
  EXPECT_EQ(
      problems("parallel_config: {tensor_model_parallel_size: 3}\n"),
      (Lines{"run.yaml:1: tensor_model_parallel_size 3 does not divide num_attention_heads 4; make it a multiple "
             "of 3, or change parallel_config.tensor_model_parallel_size",
             "run.yaml:1: tensor_model_parallel_size 3 does not divide the vocabulary's 64; make it a multiple of "
             "3, or change parallel_config.tensor_model_parallel_size",
             "run.yaml:4: num_query_groups 4 and tensor_model_parallel_size 3 do not fit: neither divides the "
             "other; give a divisor or a multiple of tensor_model_parallel_size",
             "run.yaml:4: tensor_model_parallel_size 3 does not divide ffn_hidden_size 128; make it a multiple of "
             "3, or change parallel_config.tensor_model_parallel_size"}));
  EXPECT_EQ(problems("parallel_config: {tensor_model_parallel_size: 4}\n",
                     {"model_config.group_query_attention=true", "model_config.num_query_groups=2"}),
            Lines{});
  EXPECT_EQ(problems("parallel_config: {tensor_model_parallel_size: 4, sequence_parallel: true}\n",
                     {"model_config.seq_length=18"}),
            Lines{"--set model_config.seq_length: tensor_model_parallel_size 4 does not divide with sequence_parallel "
                  "seq_length 18; make it a multiple of 4, or change parallel_config.tensor_model_parallel_size"});
}

TEST_F(ParallelRules, WhatTensorRanksShareOfLatentAttentionAndPredictionsMustDivide) {
  const std::string m = "model_config.";
  const Lines latent = {m + "multi_latent_attention=true", m + "q_lora_rank=6", m + "kv_lora_rank=9",
                        m + "qk_pos_emb_head_dim=4"},
              predictions = {m + "mtp_num_layers=1", m + "position_embedding_type=rope", m + "hidden_size=34",
                             m + "kv_channels=8", m + "ffn_hidden_size=32"};
  const auto layout = "parallel_config: {tensor_model_parallel_size: 4}\n";
  const std::string advice = "; make it a multiple of 4, or change parallel_config.tensor_model_parallel_size";
  EXPECT_EQ(
      problems(layout, latent),
      (Lines{"--set model_config.q_lora_rank: tensor_model_parallel_size 4 does not divide q_lora_rank 6" + advice,
             "--set model_config.kv_lora_rank: tensor_model_parallel_size 4 does not divide the sum of kv_lora_rank "
             "and qk_pos_emb_head_dim, 13" +
                 advice}));
  EXPECT_EQ(problems(layout, predictions),
            Lines{"--set model_config.hidden_size: tensor_model_parallel_size 4 does not divide with mtp_num_layers "
                  "hidden_size 34" +
                  advice});
  EXPECT_EQ(problems("parallel_config: {tensor_model_parallel_size: 2, sequence_parallel: true}\n",
                     {latent[0], latent[1], m + "kv_lora_rank=8", latent[3], predictions[0], predictions[1]}),
            Lines{});
  EXPECT_EQ(problems("parallel_config: {pipeline_model_parallel_size: 2, pipeline_model_parallel_layout: Et*4|t*4L}\n",
                     {predictions[0], predictions[1]}),
            Lines{"run.yaml:4: pipeline_model_parallel_layout has 0 layers of multi-token prediction (m), but "
                  "mtp_num_layers is 1; write m directly before L"});
  EXPECT_EQ(problems("parallel_config: {pipeline_model_parallel_size: 2, pipeline_model_parallel_layout: Et*4|t*4mL}\n",
                     {predictions[0], predictions[1]}),
            Lines{});
}

TEST_F(ParallelRules, AStepOfTheRampThatCannotBeMadeIsRefusedBeforeTheRun) {
  const auto ramp = [](const std::string& numbers) {
    return Lines{"training_config.training_iters=0", "dataset_config.train_samples=100",
                 "dataset_config.global_batch_size=16", "dataset_config.rampup_batch_size=" + numbers};
  };
  EXPECT_EQ(problems_on(2, ramp("[4, 4, 30]")), Lines{});
  const auto first = problems_on(2, ramp("[2, 2, 30]"));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(
      first[0],
      "--set dataset_config.rampup_batch_size: after 0 samples the global batch is 2, less than batch_size 2 on 2 "
      "ranks; begin rampup_batch_size higher, or lower batch_size");
  const auto later = problems_on(2, ramp("[4, 2, 30]"));
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(
      later[0],
      "--set dataset_config.rampup_batch_size: after 8 samples the global batch is 6, no multiple of batch_size 2 "
      "on 2 ranks; change rampup_batch_size, or give decrease_batch_size_if_needed");
  const Lines decrease = {"dataset_config.decrease_batch_size_if_needed=true"};
  auto with = ramp("[4, 2, 30]");
  with.push_back(decrease[0]);
  EXPECT_EQ(problems_on(2, with), Lines{});
  with = ramp("[2, 2, 30]");
  with.push_back(decrease[0]);
  EXPECT_EQ(problems_on(2, with), first);
}

TEST_F(ParallelRules, AWorldThatDoesNotFitIsRefusedAtTheLineThatNeedsIt) {
  const Lines cut = {p + "tensor_model_parallel_size=2", p + "pipeline_model_parallel_size=2"};
  EXPECT_EQ(problems_on(4, cut), Lines{});
  EXPECT_EQ(problems_on(6, cut),
            Lines{"--set parallel_config.tensor_model_parallel_size: a copy of the model takes 4 processes "
                  "(tensor_model_parallel_size 2 x pipeline_model_parallel_size 2), but the run has 6; start 4 "
                  "processes or a multiple of that"});
  EXPECT_EQ(problems_on(8, {p + "data_parallel_size=4"}),
            Lines{"--set parallel_config.data_parallel_size: data_parallel_size is 4, but 8 processes of which 1 hold "
                  "one copy of the model make 8; start 4 processes, or leave data_parallel_size out"});
  EXPECT_THROW(build(read(cut)), ConfigError);  // one process
}

TEST_F(ParallelRules, TheBatchIsSharedByTheRanksThereAre) {
  EXPECT_EQ(problems_on(4, {"dataset_config.global_batch_size=16"}), Lines{});
  EXPECT_EQ(problems_on(3, {"dataset_config.global_batch_size=16"}),
            Lines{"--set dataset_config.global_batch_size: global_batch_size is 16, which batch_size 2 on 3 ranks does "
                  "not divide; make it a multiple"});
  const Lines both = {"dataset_config.global_batch_size=16", "dataset_config.micro_batch_num=2"};
  EXPECT_EQ(problems_on(4, both), Lines{});
  EXPECT_EQ(
      problems_on(2, both),
      Lines{"--set dataset_config.micro_batch_num: micro_batch_num is 2, but global_batch_size 16 in micro-batches "
            "of 2 on 2 data parallel ranks makes 4; give one of micro_batch_num and global_batch_size"});
  EXPECT_EQ(read({"dataset_config.micro_batch_num=2"}).batch_sizes(4).global, 16);
}

TEST_F(ParallelRules, InterleavedStagesNeedMicroBatchesInGroups) {
  const Lines cut = {p + "pipeline_model_parallel_size=4", p + "virtual_pipeline_model_parallel_size=2"};
  const auto with = [&](const std::string& set) {
    auto all = cut;
    all.push_back(set);
    return all;
  };
  EXPECT_EQ(problems_on(4, with("dataset_config.micro_batch_num=8")), Lines{});
  EXPECT_EQ(problems("", with("dataset_config.micro_batch_num=6")),
            Lines{"--set dataset_config.micro_batch_num: a step's 6 micro batches in groups of 4 leave a last group of "
                  "2, fewer than the 4 stages; change the number of micro batches, or give "
                  "microbatch_group_size_per_vp_stage"});
  EXPECT_EQ(problems_on(4, with("dataset_config.global_batch_size=4")),
            Lines{"--set dataset_config.global_batch_size: a step has 2 micro batches, fewer than the 4 that pass "
                  "through a chunk before the next chunk's turn; change the number of micro batches, or give "
                  "microbatch_group_size_per_vp_stage"});
}

TEST_F(ParallelRules, WhatAnOptimizerCannotShareIsRefused) {
  const std::string muon = "optimizer_config.optimizer_type=muon";
  EXPECT_EQ(
      problems("parallel_config: {tensor_model_parallel_size: 2}\n", {muon}),
      Lines{"--set optimizer_config.optimizer_type: muon updates whole matrices, which tensor_model_parallel_size "
            "shards; choose another optimizer_type, or tensor_model_parallel_size 1"});
  EXPECT_EQ(problems("", {muon, "training_config.use_distributed_optimizer=true"}).size(), 1u);
  EXPECT_EQ(problems("", {muon, p + "zero_level=z1"}).size(), 1u);
  EXPECT_EQ(problems("", {muon}), Lines{});
  const std::string experts = "parallel_config: {expert_model_parallel_size: 2, expert_tensor_parallel_size: ";
  const Lines mixture = {muon, "model_config.num_experts=4", "model_config.add_bias_linear=false"};
  EXPECT_EQ(
      problems(experts + "2}\n", mixture),
      Lines{"--set optimizer_config.optimizer_type: muon updates whole matrices, but expert_tensor_parallel_size 2 "
            "shards those of the experts; choose another optimizer_type, or expert_tensor_parallel_size 1"});
  EXPECT_EQ(problems(experts + "1}\n", mixture), Lines{});
  EXPECT_EQ(
      problems("", {"optimizer_config.overlap_param_gather=true", "training_config.overlap_grad_reduce=true"}),
      Lines{"--set optimizer_config.overlap_param_gather: overlap_param_gather needs use_distributed_optimizer and "
            "overlap_grad_reduce; give training_config.use_distributed_optimizer and "
            "training_config.overlap_grad_reduce too"});
  EXPECT_EQ(problems("", {"optimizer_config.overlap_param_gather=true", p + "overlap_grad_reduce=true",
                          "training_config.use_distributed_optimizer=true"}),
            Lines{});
}

/// A format of another program with no experts.
class NoExperts : public checkpoint::CheckpointFormat {
 public:
  explicit NoExperts(std::string name, bool saves = true) : name_(std::move(name)), saves_(saves) {}
  std::string name() const override { return name_; }
  std::string program() const override { return name_; }
  std::optional<std::filesystem::path> find(const std::filesystem::path&) const override { return std::nullopt; }
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path&,
                                                     const options::Mappings&) const override {
    return nullptr;
  }
  bool saves() const override { return saves_; }
  std::vector<options::Finding> refusals(const checkpoint::SavedRun& run) const override {
    if (!run.has_experts) return {};
    return {{.option = "model_config.num_experts",
             .message = text("no experts on ", run.layout.tensor, " x ", run.layout.expert, " ranks"),
             .advice = "leave them out"}};
  }

 private:
  std::string name_;
  bool saves_;
};

TEST_F(ParallelRules, TheFormatOfCheckpointsIsRegisteredAndRefusesWhatItCannotHold) {
  registries.formats.add(std::make_shared<NoExperts>("zarr"));
  registries.formats.add(std::make_shared<NoExperts>("hf", false));
  const auto in = [&](const std::string& format, Lines sets = {}) {
    sets.push_back("training_config.ckpt_format=" + format);
    return problems("", sets);
  };
  for (const auto* format : {"zarr", "safetensors", "null"}) EXPECT_EQ(in(format), Lines{}) << format;
  for (const auto* format : {"hf", "torch_dist"})
    EXPECT_EQ(in(format), Lines{text("--set training_config.ckpt_format: ckpt_format is '", format,
                                     "'; a run can save in: safetensors, zarr; give one of these, or leave it out")});
  const Lines experts = {"model_config.num_experts=4", "model_config.add_bias_linear=false",
                         p + "expert_model_parallel_size=2"};
  EXPECT_EQ(in("safetensors", experts), Lines{});
  EXPECT_EQ(in("zarr", experts), Lines{"--set model_config.num_experts: no experts on 1 x 2 ranks; leave them out"});
}

TEST_F(ParallelRules, TheSequentialDispatcherNeedsExpertsShardedAsDenseLayers) {
  const Lines sets = {"model_config.num_experts=8",
                      "model_config.add_bias_linear=false",
                      "moe_config.moe_token_dispatcher_type=alltoall_seq",
                      p + "sequence_parallel=true",
                      p + "tensor_model_parallel_size=2",
                      p + "expert_tensor_parallel_size="};
  auto of = [&](const char* sharers) {
    auto all = sets;
    all.back() += sharers;
    return problems("", all);
  };
  EXPECT_EQ(of("2"), Lines{});
  EXPECT_EQ(of("1"),
            Lines{"--set parallel_config.expert_tensor_parallel_size: moe_token_dispatcher_type is alltoall_seq, which "
                  "needs expert_tensor_parallel_size equal to tensor_model_parallel_size; they are 1 and 2; leave "
                  "expert_tensor_parallel_size out, or give moe_token_dispatcher_type alltoall"});
}

TEST_F(ParallelRules, TheVocabularyIsRoundedUpToWhatTensorRanksShare) {
  const Lines tokenizer = {"model_config.vocab_size=", "dataset_config.tokenizer_type=NullTokenizer",
                           "dataset_config.vocab_size=50256"};
  for (const auto& [ranks, rows] : {std::pair{1, 50304}, {2, 50432}, {4, 50688}}) {
    auto sets = tokenizer;
    sets.push_back(text(p, "tensor_model_parallel_size=", ranks));
    const auto recipe = read(sets);
    EXPECT_EQ(report.problems(), Lines{});
    EXPECT_EQ(vocabulary(recipe, recipe.tokenizer.make().get()), rows);
  }
}

TEST_F(ParallelRules, OptionsOfTheCutReadBackToThemselves) {
  const Lines sets = {p + "pipeline_model_parallel_size=2", p + "num_layer_list='[[3,1],[2,2]]'",
                      p + "use_tp_pp_dp_mapping=true", p + "zero_level=z1"};
  const auto once = read(sets);
  EXPECT_EQ(report.problems(), Lines{});
  write("again.yaml", resolved_yaml(once));
  report = {};
  const auto again = read_recipe("again.yaml", {}, registries, report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(once.resolved), text(again.resolved));
  EXPECT_EQ(again.layer_plan().at(0, 0).layers, 3);
}

std::int64_t whole(const Recipe& recipe) {
  std::int64_t sum = 0;
  const auto model = build_model(recipe, nullptr);
  for (const auto* parameter : model->parameters()) sum += parameter->elements();
  return sum;
}

TEST_F(ParallelRules, StagesTogetherHoldTheModelAndTheTiedTableTwice) {
  const auto untied = read({p + "pipeline_model_parallel_size=4", "dataset_config.micro_batch_num=4",
                            "model_config.untie_embeddings_and_output_weights=true"});
  std::int64_t sum = 0;
  for (const auto& rank : layout_figures(untied, 4).ranks) sum += rank.parameters;
  EXPECT_EQ(sum, whole(untied));
  const auto tied = read({p + "pipeline_model_parallel_size=4", "dataset_config.micro_batch_num=4"});
  sum = 0;
  for (const auto& rank : layout_figures(tied, 4).ranks) sum += rank.parameters;
  EXPECT_EQ(sum, whole(tied) + 64 * 32);
}

TEST_F(ParallelRules, FiguresOfALayoutTellWhatEachRankHolds) {
  const auto one = layout_figures(read({}), 1);
  const auto recipe = read({p + "tensor_model_parallel_size=2", p + "pipeline_model_parallel_size=2",
                            "dataset_config.global_batch_size=16"});
  const auto f = layout_figures(recipe, 8);
  ASSERT_EQ(f.ranks.size(), 8u);
  EXPECT_EQ(f.shape.micro_batches, 4);
  EXPECT_EQ(f.ranks[5].place, (parallel::MeshPlace{1, 0, 0, 1}));
  EXPECT_EQ(layers_told(f.plan, 0), "embedding, 0-3");
  EXPECT_EQ(layers_told(f.plan, 1), "4-7, loss");
  EXPECT_EQ(one.ranks[0].parameters, whole(recipe));
  const std::int64_t h = 32;  // a layer: norms and biases of the two rows' outputs whole, the rest halved
  const std::int64_t layer = 4 * h + 2 * h + (3 * h * h + 3 * h + h * h + 4 * h * h + 4 * h + 4 * h * h) / 2;
  EXPECT_EQ(f.ranks[0].parameters, 64 * h / 2 + 16 * h + 4 * layer);
  EXPECT_EQ(f.ranks[7].parameters, 64 * h / 2 + 2 * h + 4 * layer);
  EXPECT_NEAR(f.bubble(), parallel::ideal_bubble(f.shape), 0.02);
}

TEST_F(ParallelRules, ALayerWithExpertsCostsThoseThatATokenChooses) {
  const auto cost = [&](std::int64_t ranks, Lines sets) {
    sets.insert(sets.end(), {"model_config.add_bias_linear=false", "dataset_config.global_batch_size=16"});
    return layout_figures(read(sets), ranks).costs.at(0).at(0);
  };
  const Lines experts = {"model_config.num_experts=8", "moe_config.moe_router_topk=2",
                         "moe_config.moe_ffn_hidden_size=24"};
  const auto dense = cost(1, {"model_config.ffn_hidden_size=48"});
  EXPECT_EQ(cost(1, experts), dense);
  EXPECT_EQ(cost(4, experts + Lines{p + "expert_model_parallel_size=4"}), dense);
  const Lines halves = {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true"};
  const auto half = cost(2, halves + Lines{"model_config.ffn_hidden_size=48"});
  EXPECT_EQ(cost(2, halves + experts), half);
  EXPECT_EQ(cost(2, halves + experts + Lines{p + "expert_tensor_parallel_size=1"}), half);
  EXPECT_EQ(cost(4, halves + experts + Lines{p + "expert_tensor_parallel_size=1", p + "expert_model_parallel_size=4"}),
            half);
}

TEST_F(ParallelRules, FewerReplicasThatDivideItKeepTheGlobalBatch) {
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(numbers_of_ranks(read({}), 6), (Numbers{1, 2, 3, 6}));
  EXPECT_EQ(numbers_of_ranks(read({p + "tensor_model_parallel_size=2"}), 8), (Numbers{2, 4, 8}));
  EXPECT_EQ(numbers_of_ranks(read({"dataset_config.global_batch_size=12", p + "data_parallel_size=3"}), 3),
            (Numbers{1, 2, 3}));
  EXPECT_EQ(numbers_of_ranks(read({p + "pipeline_model_parallel_size=4", "dataset_config.micro_batch_num=4"}), 4),
            Numbers{4});
  EXPECT_EQ(numbers_of_ranks(read({p + "pipeline_model_parallel_size=2", "dataset_config.micro_batch_num=4",
                                   p + "virtual_pipeline_model_parallel_size=2"}),
                             6),
            (Numbers{2, 4, 6}));
  const auto rounded_down = [&](std::int64_t global, const Lines& more = {}) {
    return numbers_of_ranks(read(Lines{text("dataset_config.global_batch_size=", global), "dataset_config.batch_size=1",
                                       "dataset_config.decrease_batch_size_if_needed=true"} +
                                 more),
                            4);
  };
  EXPECT_EQ(rounded_down(8), (Numbers{1, 2, 4}));
  EXPECT_EQ(rounded_down(10), Numbers{4}) << "a step has 8 samples on four replicas, and 10 on two";
  EXPECT_EQ(rounded_down(8, {"dataset_config.rampup_batch_size=[4, 1, 40]"}), Numbers{4});
  auto recipe = read({"dataset_config.micro_batch_num=3", p + "data_parallel_size=4"});
  const auto resolved = resolved_yaml(recipe);
  keep_global_batch(recipe, 4);
  EXPECT_EQ(recipe.batch_sizes(2).global, 24);
  EXPECT_EQ(recipe.batch.micro_batches(2), 6);
  EXPECT_EQ(recipe.batch.micro_batches(4), 3);
  check_ranks(recipe, 2);
  EXPECT_EQ(resolved_yaml(recipe), resolved) << "the recipe stays what was given";
}

TEST_F(ParallelRules, FewerReplicasReadTheSamplesInTheOrderOfAll) {
  for (const std::string sharding : {"true", "false"}) {
    auto recipe = read({"dataset_config.dataloader_type=cyclic", "dataset_config.data_sharding=" + sharding,
                        "dataset_config.micro_batch_num=1"});
    const auto on_all = open_data(recipe, 4);
    keep_global_batch(recipe, 4);
    const auto on_two = open_data(recipe, 2);
    EXPECT_EQ(on_two.train_order->stride(), on_all.train_order->stride());
    for (std::int64_t consumed = 0; consumed < 3 * on_all.splits->train->samples(); ++consumed)
      ASSERT_EQ(on_two.train_order->index(consumed), on_all.train_order->index(consumed)) << consumed;
  }
}

TEST_F(ParallelRules, ASharedOptimizerTakesLessOfEachRank) {
  const Lines big = {"model_config.hidden_size=128", "dataset_config.micro_batch_num=1"};
  const auto alone = layout_figures(read(big), 2).ranks[0].state.all();
  EXPECT_EQ(alone, [&] {
    const auto recipe = read(big);
    const auto model = build_model(recipe, nullptr);
    return training::bytes_of_state(model->parameters(), *recipe.optimizer.make()).all();
  }());
  auto sets = big;
  sets.push_back("training_config.use_distributed_optimizer=true");
  EXPECT_NEAR(static_cast<double>(layout_figures(read(sets), 2).ranks[0].state.all()),
              0.75 * static_cast<double>(alone), 64);
  sets.push_back("training_config.bf16=true");
  const auto half = layout_figures(read({big[0], big[1], "training_config.bf16=true"}), 2).ranks[0].state.all();
  // 12 bytes a weight: 2 that are gathered, 4 of gradients, 6 of its half of masters and moments. Without sharing 16,
  // and 2 more where a copy in bf16 is kept.
  const auto whole = kernels::multiplies_floats(DType::bfloat16) ? 16.0 : 18.0;
  EXPECT_NEAR(static_cast<double>(layout_figures(read(sets), 2).ranks[0].state.all()),
              12 / whole * static_cast<double>(half), 0.01 * static_cast<double>(half));
}

}  // namespace
}  // namespace tessera::recipe
