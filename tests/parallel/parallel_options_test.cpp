#include "framework/parallel/parallel_options.h"

#include <gtest/gtest.h>

#include "framework/options/yaml.h"
#include "framework/parallel/data_parallel_options.h"

namespace tessera::parallel {
namespace {

std::string read_numbers(const std::string& words) {
  ChunkNumbers numbers;
  return options::OptionType<ChunkNumbers>::read(options::Value::of(words, {}), numbers)
             ? text(options::OptionType<ChunkNumbers>::write(numbers))
             : "refused";
}

options::Value list(const std::vector<std::int64_t>& numbers) {
  return options::OptionType<std::vector<std::int64_t>>::write(numbers);
}

TEST(ChunkNumbers, AreReadFromListsAndFromText) {
  EXPECT_EQ(read_numbers("[[4,4],[4, 2]]"), "[[4, 4], [4, 2]]");
  EXPECT_EQ(read_numbers(" [ [4] , [2] ] "), "[[4], [2]]");
  EXPECT_EQ(read_numbers("[4,4,2]"), "[[4], [4], [2]]");
  EXPECT_EQ(read_numbers("4,4,2"), "[[4], [4], [2]]");
  EXPECT_EQ(read_numbers("4"), "[[4]]");
  EXPECT_EQ(read_numbers(""), text(options::Value{}));
  for (const auto* wrong : {"4,,2", "[4", "4]", "[[4],2]", "four", "[4,]", "4;2", "[[4],[2]]x", "[[[4]]]"})
    EXPECT_EQ(read_numbers(wrong), "refused") << wrong;
  ChunkNumbers numbers;
  EXPECT_TRUE(options::OptionType<ChunkNumbers>::read(list({3, 3}), numbers));
  EXPECT_EQ(numbers.stages, (std::vector<std::vector<std::int64_t>>{{3}, {3}}));
  EXPECT_TRUE(options::OptionType<ChunkNumbers>::read({}, numbers));
  EXPECT_TRUE(numbers.empty());
}

TEST(LayerIds, AreReadFromListsAndFromText) {
  const auto read = [](const options::Value& value) {
    LayerIds layers;
    return options::OptionType<LayerIds>::read(value, layers) ? text(options::OptionType<LayerIds>::write(layers))
                                                              : "refused";
  };
  EXPECT_EQ(read(options::Value::of("60,61", {})), "[60, 61]");
  EXPECT_EQ(read(options::Value::of("0", {})), "[0]");
  EXPECT_EQ(read(list({3, 1})), "[3, 1]");
  EXPECT_EQ(read(options::Value::of("", {})), text(options::Value{}));
  EXPECT_EQ(read(options::Value::of("[[1]]", {})), "refused");
  EXPECT_EQ(read(options::Value::of("1-2", {})), "refused");
}

std::vector<std::string> problems(const std::string& group) {
  options::Report report;
  const auto tree = options::parse_yaml("parallel_config: " + group + "\n", "run.yaml");
  options::Group values(tree, "parallel_config", report);
  options::read_own<ParallelOptions>(values);
  values.finish();
  return report.problems();
}

TEST(ParallelOptions, TakeWhatTheirSourcesTake) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(problems("{tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4, sequence_parallel: true, "
                     "virtual_pipeline_model_parallel_size_ms: 4, num_layers_per_virtual_pipeline_stage: 4, "
                     "num_layer_list: '[[4,4],[4,2]]', noop_layers: '', recompute: [[1, 0], [0, 1]], "
                     "recompute_config: {select_recompute: '1,2'}, zero_level: z1}"),
            Lines{});
  EXPECT_EQ(problems("{tensor_model_parallel_size: 0}"),
            Lines{"run.yaml:1: tensor_model_parallel_size must be >= 1, is 0; give a value >= 1"});
  EXPECT_EQ(problems("{num_layer_list: [[2, -1]]}").size(), 1u);
  EXPECT_EQ(problems("{num_layer_list: four}").size(), 1u);
  EXPECT_EQ(problems("{noop_layers: [-1]}").size(), 1u);
  for (const auto* good : {"{context_parallel_size: 4, cp_comm_type: all_gather}", "{cp_comm_type: [p2p, a2a+p2p]}",
                           "{hierarchical_context_parallel_sizes: [2, 2], ulysses_degree_in_cp: 2}",
                           "{context_parallel_algo: kvallgather_cp_algo, cp_comm_type: ~}"})
    EXPECT_EQ(problems(good), Lines{}) << good;
  for (const auto* wrong :
       {"{context_parallel_size: 0}", "{cp_comm_type: ring}", "{cp_comm_type: [p2p, ring]}",
        "{context_parallel_algo: adaptive_cp_algo}", "{hierarchical_context_parallel_sizes: [0, 2]}"})
    EXPECT_EQ(problems(wrong).size(), 1u) << wrong;
}

TEST(ParallelOptions, AWorldThatDoesNotFitIsRefusedWithItsNumbers) {
  ParallelOptions o;
  o.tensor_model_parallel_size = 2;
  o.pipeline_model_parallel_size = 3;
  EXPECT_TRUE(mistakes_of_ranks(o, 12).empty());
  EXPECT_EQ(data_parallel_ranks(o, 12), 2);
  for (const auto world : {1, 3, 8, 0}) {
    const auto wrong = mistakes_of_ranks(o, world);
    ASSERT_EQ(wrong.size(), 1u) << world;
    EXPECT_EQ(wrong[0].message, text("a copy of the model takes 6 processes (tensor_model_parallel_size 2 x "
                                     "pipeline_model_parallel_size 3), but the run has ",
                                     world));
  }
  o.data_parallel_size = 3;
  EXPECT_TRUE(mistakes_of_ranks(o, 18).empty());
  ASSERT_EQ(mistakes_of_ranks(o, 12).size(), 1u);
  EXPECT_EQ(mistakes_of_ranks(o, 12)[0].advice, "start 18 processes, or leave data_parallel_size out");
}

TEST(ParallelOptions, WhatTensorRanksCutMustDivide) {
  ParallelOptions o;
  const auto sizes = [](std::int64_t heads, std::int64_t groups, std::int64_t inner, std::int64_t vocabulary,
                        std::int64_t seq_length, std::vector<CutExtents::Width> gathered = {}) {
    return CutExtents{.heads = {{heads, groups}},
                      .inner = {{"model_config.ffn_hidden_size", "ffn_hidden_size", inner}},
                      .vocabulary = vocabulary,
                      .seq_length = seq_length,
                      .gathered = std::move(gathered)};
  };
  const auto options = [&](const CutExtents& extents) {
    std::vector<std::string> all;
    for (const auto& mistake : mistakes_of_extents(o, extents)) all.push_back(mistake.option);
    return all;
  };
  using Lines = std::vector<std::string>;
  o.tensor_model_parallel_size = 4;
  EXPECT_EQ(options(sizes(8, 4, 32, 128, 20)), Lines{});
  EXPECT_EQ(options(sizes(6, 4, 32, 128, 20)), Lines{"model_config.num_attention_heads"});
  EXPECT_EQ(options(sizes(8, 2, 32, 128, 20)), Lines{});  // each group on two ranks
  EXPECT_EQ(options(sizes(12, 3, 32, 128, 20)), Lines{"model_config.num_query_groups"});
  EXPECT_EQ(options(sizes(8, 4, 30, 129, 20)), (Lines{"model_config.ffn_hidden_size", "model_config.vocab_size"}));
  EXPECT_EQ(options(sizes(8, 4, 32, 0, 21)), Lines{});
  EXPECT_EQ(options(sizes(8, 4, 32, 128, 20, {{"model_config.a", "a", 12}, {"model_config.b", "b", 14}})),
            Lines{"model_config.b"});
  // Two towers whose groups are copied unequally often; with a group for each rank there are no copies.
  auto towers = sizes(8, 2, 32, 128, 20);
  towers.heads.push_back({8, 4, "model_config.other_heads", "model_config.other_groups"});
  EXPECT_EQ(options(towers), Lines{});
  towers.heads[1].groups = 1;
  EXPECT_EQ(options(towers), Lines{"model_config.num_query_groups"});
  towers.heads[1].heads = 6;
  EXPECT_EQ(options(towers), (Lines{"model_config.num_query_groups", "model_config.other_heads"}));
  o.sequence_parallel = true;
  EXPECT_EQ(options(sizes(8, 4, 32, 0, 21)), Lines{"model_config.seq_length"});
}

TEST(DataParallelOptions, TheUsualBucketIsMegatrons) {
  DataParallelOptions o;
  EXPECT_EQ(o.bucket_elements(8), 40000000);
  EXPECT_EQ(o.bucket_elements(64), 64000000);
  o.bucket_size = 7;
  EXPECT_EQ(o.bucket_elements(64), 7);
}

}  // namespace
}  // namespace tessera::parallel
