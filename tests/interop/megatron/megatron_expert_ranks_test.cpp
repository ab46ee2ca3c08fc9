// Checkpoints of Megatron-LM by ranks that divide experts: the files of each rank, and every layout read back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <set>

#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/yaml.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/random_layouts.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = torch::PickleNode::Kind;

const DrawnModel three_layers{.layers = 3, .experts = 4, .kinds = "[0, 1, 1]"};

class MegatronExpertRanks : public InOwnFolder {
 protected:
  /// Where saving waits for no disk.
  MegatronExpertRanks() : InOwnFolder(fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {}
  options::Mappings mappings;

  /// Every weight of the model and its optimizer state, each element a number of its own; the state of biases of
  /// routers is zero.
  std::vector<checkpoint::TensorRange> model(const DrawnModel& form) {
    std::vector<checkpoint::TensorRange> all;
    for (const auto& rank : ranks_of(recipe_of(form), {}))
      for (const auto& part : rank.chunks[0])
        for (const std::string beginning : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
          const bool no_state = !beginning.empty() && part.role == ParameterRole::expert_bias;
          auto& values = memory_.emplace_back(static_cast<std::size_t>(part.global_shape.elements()));
          for (auto& value : values) value = no_state ? 0.F : static_cast<float>(++count_ % 16777213);
          all.push_back(
              checkpoint::whole(beginning + part.name, Tensor(std::span(values), part.global_shape), part.role));
        }
    return all;
  }

  fs::path save(const DrawnModel& form, std::span<const checkpoint::TensorRange> tensors,
                const checkpoint::CheckpointLayout& layout, DType type = DType::float32) {
    fs::remove_all("run");
    return save_megatron("run", {.iteration = 7, .updates = 6}, tensors, recipe_of(form), type, mappings, layout);
  }

  /// Empty, or the first tensors that the checkpoint in "run" has not as they were given.
  std::string differences(std::span<const checkpoint::TensorRange> expected) {
    const megatron::MegatronCheckpoint source("run", mappings);
    std::string all;
    std::size_t weights = 0;
    for (const auto& range : expected) {
      weights += checkpoint::is_optimizer_state(range.name) ? 0 : 1;
      const auto values = range.tensor.floats();
      if (!source.has(range.name))
        all += text(range.name, " is missing\n");
      else if (source.shape(range.name) != range.global_shape)
        all += text(range.name, " is of ", source.shape(range.name), "\n");
      else if (floats(source, range.name) != std::vector<float>(values.begin(), values.end()))
        all += text(range.name, " has other values\n");
    }
    if (source.names().size() != weights) all += "there are more weights\n";
    if (source.optimizer_names().size() != 2 * weights) all += "there is more optimizer state\n";
    if (source.progress()->updates != 6) all += "the number of updates is another\n";
    return all;
  }

  static std::string describe(const checkpoint::CheckpointLayout& layout) {
    std::string stages;
    for (const auto& stage : layout.layers) {
      stages += stages.empty() ? "" : " |";
      for (const auto layers : stage) stages += text(" ", layers);
    }
    return text("tp ", layout.tensor, " etp ", layout.expert_tensor, " ep ", layout.expert, " layers", stages,
                layout.distributed_optimizer ? " distributed optimizer" : "");
  }

 private:
  std::deque<std::vector<float>> memory_;
  std::int64_t count_ = 0;
};

/// The folders of ranks in `folder`.
std::set<std::string> ranks_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

/// What a rank saved: the keys of its model, and its optimizers.
struct Saved {
  explicit Saved(const fs::path& folder) : file(folder / megatron::weights_file) {
    const auto& items = file.root().find("model")->items;
    for (std::size_t i = 0; i < items.size(); i += 2) names.push_back(items[i]->text);
    optimizer = file.root().find("optimizer");
  }
  bool has(const std::string& name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
  std::vector<float> values(const std::string& name) const {
    const auto given = file.tensor(*file.root().find("model")->find(name), name).floats();
    return {given.begin(), given.end()};
  }
  torch::TorchFile file;
  std::vector<std::string> names;
  const torch::PickleNode* optimizer;
};

TEST_F(MegatronExpertRanks, EachRankSavesItsExpertsCountedFromZero) {
  const auto& form = three_layers;
  const auto all = model(form);
  const auto folder = save(form, all, {.tensor = 1, .expert = 2});
  EXPECT_EQ(ranks_in(folder), (std::set<std::string>{"mp_rank_00_000", "mp_rank_00_001"}));
  const std::string experts = "decoder.layers.1.mlp.experts.local_experts.";
  const Saved first(folder / "mp_rank_00_000"), second(folder / "mp_rank_00_001");
  EXPECT_EQ(first.names, second.names);
  EXPECT_TRUE(second.has(experts + "1.linear_fc1.weight"));
  EXPECT_FALSE(second.has(experts + "2.linear_fc1.weight"));
  for (const auto& range : all) {
    const auto given = range.tensor.floats();
    const std::vector<float> values(given.begin(), given.end());
    if (range.name == experts + "3.linear_fc2.weight") {
      EXPECT_EQ(second.values(experts + "1.linear_fc2.weight"), values);
    }
    if (range.name == "decoder.layers.1.mlp.router.weight") {
      EXPECT_EQ(first.values(range.name), values);
      EXPECT_EQ(second.values(range.name), values);
    }
  }
  for (const auto* rank : {&first, &second}) {
    const auto* args = rank->file.root().find("args")->items[2];
    EXPECT_EQ(args->find("expert_model_parallel_size")->integer, 2);
    EXPECT_EQ(args->find("expert_tensor_parallel_size")->integer, 1);
    EXPECT_EQ(args->find("num_experts")->integer, 4);
  }
}

/// As Megatron-LM's ChainedOptimizer: first the dense weights, then the experts; each numbers its own weights.
TEST_F(MegatronExpertRanks, DenseWeightsAndExpertsHaveAnOptimizerEach) {
  const auto& form = three_layers;
  const auto all = model(form);
  for (const auto type : {DType::float32, DType::bfloat16}) {
    const auto folder = save(form, all, {.tensor = 1, .expert = 2}, type);
    const Saved saved(folder / "mp_rank_00_001");
    ASSERT_EQ(saved.optimizer->kind, Kind::list);
    ASSERT_EQ(saved.optimizer->items.size(), 2U);
    std::vector<std::size_t> weights;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto* own = saved.optimizer->items[i];
      EXPECT_EQ(own->find("fp32_from_fp16_params") != nullptr, type == DType::bfloat16);
      const auto& inner = type == DType::float32 ? *own : *own->find("optimizer");
      weights.push_back(inner.find("state")->items.size() / 2);
      const auto& groups = inner.find("param_groups")->items;
      EXPECT_EQ(groups.size(), i == 0 ? 2U : 1U);  // experts have no norms
      for (const auto* group : groups) EXPECT_EQ(group->find("is_expert_parallel")->flag, i == 1);
      EXPECT_EQ(groups[0]->find("params")->items[0]->integer, 0);
    }
    EXPECT_EQ(weights[0] + weights[1], saved.names.size());
    EXPECT_EQ(weights[1], 2U * 2 * 2);  // layers, experts, matrices
  }
  // Without expert parallelism Megatron-LM has one optimizer for all.
  EXPECT_EQ(Saved(save(form, all, {}) / "mp_rank_00").optimizer->kind, Kind::dict);
  // A stage without experts has no optimizer of experts.
  const auto folder = save(form, all, {.tensor = 1, .layers = {{1}, {2}}, .expert = 2});
  EXPECT_EQ(Saved(folder / "mp_rank_00_000_001").optimizer->kind, Kind::dict);
  EXPECT_EQ(Saved(folder / "mp_rank_00_001_001").optimizer->kind, Kind::list);
}

/// Rank 0 of the data-parallel ranks saves their state: of dense weights all expert-parallel ranks are such, of an
/// expert those that have the same one.
TEST_F(MegatronExpertRanks, SharedStateOfDenseWeightsIsInTheFilesOfTheFirstRanksAlone) {
  const auto& form = three_layers;
  const auto all = model(form);
  const auto folder = save(
      form, all, {.tensor = 2, .layers = {{1}, {2}}, .distributed_optimizer = true, .expert = 4, .expert_tensor = 1});
  EXPECT_EQ(ranks_in(folder), (std::set<std::string>{"mp_rank_00_000_000", "mp_rank_01_000_001", "mp_rank_00_000_002",
                                                     "mp_rank_01_000_003", "mp_rank_00_001_000", "mp_rank_01_001_001",
                                                     "mp_rank_00_001_002", "mp_rank_01_001_003"}));
  for (const auto* name : {"mp_rank_00_000_000", "mp_rank_01_000_001", "mp_rank_00_000_002", "mp_rank_01_000_003"}) {
    const bool first = std::string(name) < "mp_rank_00_000_002" || std::string(name) == "mp_rank_01_000_001";
    const auto file = folder / name / "distrib_optim.pt";  // of the stage without experts
    ASSERT_EQ(fs::exists(file), first) << name;
    if (first) {
      EXPECT_EQ(torch::TorchFile(file).root().kind, Kind::dict) << name;
    }
  }
  for (const auto* name : {"mp_rank_00_001_000", "mp_rank_01_001_001", "mp_rank_00_001_002", "mp_rank_01_001_003"}) {
    const bool first = std::string(name) == "mp_rank_00_001_000" || std::string(name) == "mp_rank_01_001_001";
    const torch::TorchFile file(folder / name / "distrib_optim.pt");
    ASSERT_EQ(file.root().kind, Kind::list) << name;
    ASSERT_EQ(file.root().items.size(), 2U) << name;
    EXPECT_EQ(file.root().items[0]->kind, first ? Kind::dict : Kind::none) << name;
    EXPECT_EQ(file.root().items[1]->kind, Kind::dict) << name;
    // One expert of each of two layers, [24, 8] and [8, 12]: every weight begins at a multiple of 64.
    const auto* buffer = file.root().items[1]->items.back()->items[1];
    EXPECT_EQ(buffer->find("numel_unpadded")->integer, 2 * (128 + 192)) << name;
  }
  EXPECT_EQ(differences(all), "");
}

TEST_F(MegatronExpertRanks, RandomLayoutsOfRandomModelsReadBackToTheSameTensors) {
  Draw draw;
  int divided = 0, refused = 0;
  for (int i = 0; i < 60 / part_of_inputs; ++i) {
    const auto form = draw.model(draw.one_of(std::vector{4, 8}));
    const auto layout = draw.layout(form);
    const auto what =
        text(draw.about(), ", layout ", i, ": ", describe(layout), "\n", options::write_yaml(recipe_of(form)));
    const auto all = model(form);
    if (!megatron::MegatronFormat().refusals({.layout = layout, .has_experts = true}).empty()) {
      const auto story = story_of([&] { save(form, all, layout); });
      ASSERT_TRUE(says(story, "do not name the ranks of expert_tensor_parallel_size")) << story << what;
      ASSERT_FALSE(fs::exists("run")) << what;
      ++refused;
      continue;
    }
    save(form, all, {});
    const auto order = megatron::MegatronCheckpoint("run", mappings).names();
    const auto folder = save(form, all, layout, draw.chance() ? DType::bfloat16 : DType::float32);
    ASSERT_EQ(static_cast<std::int64_t>(ranks_in(folder).size()), layout.ranks() * layout.stages()) << what;
    ASSERT_EQ(differences(all), "") << what;
    const megatron::MegatronCheckpoint source("run", mappings);
    EXPECT_EQ(source.names(), order) << what;
    EXPECT_EQ(source.layout().tensor, layout.tensor) << what;
    EXPECT_EQ(source.layout().expert, layout.expert) << what;
    EXPECT_EQ(source.layout().sharers_of_expert(), layout.expert_tensor) << what;
    divided += layout.expert > 1 ? 1 : 0;
  }
  EXPECT_GE(divided, sanitized ? 0 : 6) << draw.about();
  EXPECT_GE(refused, sanitized ? 0 : 6) << draw.about();
}

TEST_F(MegatronExpertRanks, WhatIsMissingOrOfAnotherLayoutIsNamed) {
  const auto& form = three_layers;
  const auto all = model(form);
  const auto read = [&] { return story_of([&] { megatron::MegatronCheckpoint("run", mappings); }); };
  const checkpoint::CheckpointLayout layout{
      .tensor = 2, .layers = {{1}, {2}}, .distributed_optimizer = true, .expert = 2, .expert_tensor = 2};
  const auto folder = save(form, all, layout);
  EXPECT_EQ(read(), "no error");
  fs::rename(folder / "mp_rank_01_001_001", folder / "kept");
  EXPECT_TRUE(says(read(),
                   "mp_rank_01_001_001 is missing: its ranks are 2 of tensor parallelism times 2 stages, and 2 "
                   "divide the experts"))
      << read();
  fs::rename(folder / "kept", folder / "mp_rank_01_001_002");
  EXPECT_TRUE(says(read(), "mp_rank_01_001_001 is missing")) << read();
  fs::copy(folder / "mp_rank_01_001_002", folder / "mp_rank_01_001_001");
  EXPECT_TRUE(says(read(),
                   "holds mp_rank_01_001_002, which no rank of its layout saves: tensor parallelism 2, expert "
                   "parallelism 2 with 2 ranks that share an expert"))
      << read();
  fs::rename(folder / "mp_rank_01_001_002", folder / "mp_rank_01");
  EXPECT_TRUE(
      says(read(), "holds mp_rank_01, which has no place in a layout of tensors, stages and 2 ranks that divide"))
      << read();
  fs::remove_all(folder / "mp_rank_01");
  EXPECT_EQ(read(), "no error");
  // The state of experts is on every rank, that of the other weights on the first.
  fs::remove(folder / "mp_rank_01_001_001" / "distrib_optim.pt");
  EXPECT_TRUE(says(read(), "local_experts.2.linear_fc1.weight' is not the same on all tensor parallel ranks"))
      << read();
}

/// One tensor of each module, as ranks with TEGroupedMLP and GroupedMLP save them.
TEST_F(MegatronExpertRanks, ModulesOfAllExpertsOfARankAreNumberedAmongAllExperts) {
  const std::string layer = "decoder.layers.0.mlp.experts.";
  const auto write_rank = [&](int rank, const std::vector<std::pair<std::string, Shape>>& tensors, int experts,
                              bool extended = false) {
    const auto folder = fs::path("odd/iter_0000001") / text("mp_rank_00_00", rank);
    fs::create_directories(folder);
    torch::TorchFileWriter file;
    auto& p = file.pickle;
    std::deque<std::vector<float>> memory;
    p.empty_dict();
    p.mark();
    p.text("args");
    p.empty_dict();
    p.mark();
    for (const auto& [name, value] : {std::pair{"num_experts", experts}, {"expert_model_parallel_size", 2}}) {
      p.text(name);
      p.integer(value);
    }
    p.text("moe_extended_tp");
    p.boolean(extended);
    p.set_items();
    p.text("model");
    p.empty_dict();
    p.mark();
    for (const auto& [name, shape] : tensors) {
      p.text(name);
      auto& values = memory.emplace_back(static_cast<std::size_t>(shape.elements()), static_cast<float>(rank));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += 10 * static_cast<float>(i);
      file.tensor(Tensor(std::span(values), shape));
    }
    p.set_items();
    p.set_items();
    file.write(folder / megatron::weights_file);
  };
  const auto read = [&] { return megatron::MegatronCheckpoint("odd/iter_0000001", mappings); };
  const auto ours = [&](int expert, const char* end) {
    return text(layer, "local_experts.", expert, ".", end, ".weight");
  };
  for (int rank = 0; rank < 2; ++rank)
    write_rank(rank, {{layer + "linear_fc1.weight0", {2, 1}}, {layer + "linear_fc1.weight1", {2, 1}}}, 4);
  {
    const auto source = read();
    EXPECT_EQ(source.names(), (std::vector<std::string>{ours(0, "linear_fc1"), ours(1, "linear_fc1"),
                                                        ours(2, "linear_fc1"), ours(3, "linear_fc1")}));
    EXPECT_EQ(floats(source, ours(3, "linear_fc1")), (std::vector<float>{1, 11}));
  }
  for (int rank = 0; rank < 2; ++rank) write_rank(rank, {{layer + "weight1", {1, 4}}, {layer + "weight2", {2, 1}}}, 4);
  {
    const auto source = read();
    EXPECT_EQ(source.names().size(), 8U);
    EXPECT_EQ(source.shape(ours(3, "linear_fc1")), (Shape{2, 1}));
    EXPECT_EQ(floats(source, ours(3, "linear_fc1")), (std::vector<float>{21, 31}));
    EXPECT_EQ(floats(source, ours(2, "linear_fc2")), (std::vector<float>{1}));
  }
  // What versions without expert_tensor_parallel_size save with it.
  for (const int rank : {0, 1}) write_rank(rank, {{layer + "linear_fc1.weight0", {2, 1}}}, 2, true);
  EXPECT_TRUE(says(story_of([&] { read(); }), "was saved with moe_extended_tp")) << story_of([&] { read(); });
  // More experts in a file than a rank has.
  for (const int rank : {0, 1}) write_rank(rank, {{layer + "linear_fc1.weight1", {2, 1}}}, 2);
  EXPECT_TRUE(says(story_of([&] { read(); }), "is of another expert than the 1 of a rank"))
      << story_of([&] { read(); });
}

TEST(MegatronFormat, RunsWhoseRanksItsFoldersDoNotNameOrWithLayersThatDoNothingAreRefused) {
  const auto refusals = [](std::int64_t tensor, std::int64_t sharers, std::int64_t experts, bool has_experts) {
    return megatron::MegatronFormat().refusals(
        {.layout = {.tensor = tensor, .expert = experts, .expert_tensor = sharers}, .has_experts = has_experts});
  };
  for (const auto& [tensor, sharers, ranks] :
       {std::array{2, 2, 1}, {2, 2, 4}, {2, 1, 2}, {4, 1, 4}, {4, 2, 2}, {1, 1, 8}})
    EXPECT_TRUE(refusals(tensor, sharers, ranks, true).empty()) << tensor << sharers << ranks;
  for (const auto& [tensor, sharers, ranks] : {std::array{2, 1, 1}, {4, 1, 2}, {1, 2, 4}, {2, 4, 1}}) {
    EXPECT_TRUE(refusals(tensor, sharers, ranks, false).empty()) << tensor << sharers << ranks;
    const auto told = refusals(tensor, sharers, ranks, true);
    ASSERT_EQ(told.size(), 1U) << tensor << sharers << ranks;
    EXPECT_EQ(told[0].option, "parallel_config.expert_tensor_parallel_size");
    EXPECT_TRUE(says(told[0].message,
                     text("do not name the ranks of expert_tensor_parallel_size ", sharers,
                          " x expert_model_parallel_size ", ranks, " with tensor_model_parallel_size ", tensor)))
        << told[0].message;
  }
  const auto noop = megatron::MegatronFormat().refusals({.layout = {}, .has_noop_layers = true});
  ASSERT_EQ(noop.size(), 1U);
  EXPECT_EQ(noop[0].option, "parallel_config.noop_layers");
}

}  // namespace
}  // namespace tessera
