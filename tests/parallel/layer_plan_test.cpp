#include "framework/parallel/layer_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/parallel/layer_shares.h"

namespace tessera::parallel {
namespace {

using Counts = std::vector<std::vector<std::int64_t>>;

Counts counts(const LayerPlan& plan) {
  Counts all;
  for (std::int64_t p = 0; p < plan.stages(); ++p) {
    all.emplace_back();
    for (const auto& chunk : plan.stage(p)) all.back().push_back(chunk.layers);
  }
  return all;
}

ParallelOptions stages(std::int64_t count) {
  ParallelOptions o;
  o.pipeline_model_parallel_size = count;
  return o;
}

ParallelOptions listed(Counts list) {
  auto o = stages(static_cast<std::int64_t>(list.size()));
  o.num_layer_list.stages = std::move(list);
  return o;
}

ParallelOptions laid_out(std::int64_t stage_count, const std::string& layout) {
  auto o = stages(stage_count);
  o.pipeline_model_parallel_layout = layout;
  return o;
}

/// "option: message; suggestion" of every mistake.
std::vector<std::string> mistakes(const ParallelOptions& o, std::int64_t layers) {
  std::vector<std::string> all;
  for (const auto& m : LayerPlan::mistakes(o, layers)) all.push_back(text(m.option, ": ", m.message, "; ", m.advice));
  return all;
}

TEST(LayerPlan, OneProcessHoldsEverything) {
  const LayerPlan plan(ParallelOptions{}, 5);
  EXPECT_EQ(plan.stages(), 1);
  EXPECT_EQ(plan.chunks(), 1);
  EXPECT_EQ(plan.at(0, 0), (ModelChunk{true, 0, 5, true}));
  EXPECT_EQ(LayerPlan(5).at(0, 0), plan.at(0, 0));
  EXPECT_FALSE(plan.after({0, 0}));
  EXPECT_FALSE(plan.before({0, 0}));
}

TEST(LayerPlan, LayersAreNumberedChunkByChunkThroughAllStages) {
  auto o = stages(2);
  o.virtual_pipeline_model_parallel_size = 2;
  const LayerPlan plan(o, 8);
  EXPECT_EQ(plan.at(0, 0), (ModelChunk{true, 0, 2, false, {}, 0, 2}));
  EXPECT_EQ(plan.at(1, 0), (ModelChunk{false, 2, 2, false, {}, 0, 2}));
  EXPECT_EQ(plan.at(0, 1), (ModelChunk{false, 4, 2, false, {}, 1, 2}));
  EXPECT_EQ(plan.at(1, 1), (ModelChunk{false, 6, 2, true, {}, 1, 2}));
  EXPECT_EQ(plan.of_layer(5), (LayerPlan::ChunkIndex{0, 1}));
  EXPECT_EQ(plan.drawing(),
            "stage 0 | embedding, layers 0-1 | layers 4-5\n"
            "stage 1 | layers 2-3 | layers 6-7, loss\n");
}

TEST(LayerPlan, OutputsGoThroughAllStagesBeforeTheNextChunk) {
  auto o = stages(3);
  o.virtual_pipeline_model_parallel_size = 2;
  const LayerPlan plan(o, 6);
  std::vector<LayerPlan::ChunkIndex> way = {{0, 0}};
  while (const auto next = plan.after(way.back())) {
    EXPECT_EQ(plan.before(*next), way.back());
    way.push_back(*next);
  }
  EXPECT_EQ(way, (std::vector<LayerPlan::ChunkIndex>{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}}));
}

TEST(LayerPlan, AListOfThePanGuRecipeWinsOverWhatStandsBesideIt) {
  auto o = listed({{4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 2}});
  o.virtual_pipeline_model_parallel_size = 4;
  o.num_layers_per_virtual_pipeline_stage = 4;  // 62 / 4 / 4 is not a whole number
  const LayerPlan plan(o, 62);
  EXPECT_EQ(plan.at(3, 3), (ModelChunk{false, 60, 2, true, {}, 3, 4}));
  EXPECT_EQ(counts(plan), (Counts{{4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 2}}));
}

TEST(LayerPlan, WhatStagesDoNotDivideIsSharedOutAsCoreMsDoes) {
  EXPECT_EQ(counts(LayerPlan(stages(4), 6)), (Counts{{1}, {2}, {2}, {1}}));
  EXPECT_EQ(counts(LayerPlan(stages(4), 7)), (Counts{{2}, {2}, {2}, {1}}));
  auto o = stages(2);
  o.virtual_pipeline_model_parallel_size = 2;
  EXPECT_EQ(counts(LayerPlan(o, 7)), (Counts{{2, 2}, {2, 1}}));
}

TEST(LayerPlan, ChunksCanBeGivenByTheirLength) {
  auto o = stages(2);
  o.num_layers_per_virtual_pipeline_stage = 1;
  EXPECT_EQ(LayerPlan(o, 8).chunks(), 4);
  o.virtual_pipeline_model_parallel_size = 4;
  EXPECT_EQ(mistakes(o, 8), std::vector<std::string>{});
  o.virtual_pipeline_model_parallel_size = 2;
  EXPECT_EQ(mistakes(o, 8).size(), 1u);
  o.virtual_pipeline_model_parallel_size.reset();
  o.num_layers_per_virtual_pipeline_stage = 3;
  EXPECT_EQ(mistakes(o, 8),
            std::vector<std::string>{"parallel_config.num_layers_per_virtual_pipeline_stage: "
                                     "num_layers_per_virtual_pipeline_stage is 3, but 8 layers over 2 stages are not "
                                     "divisible by it; change it, or give num_layer_list"});
}

TEST(LayerPlan, TheEndsMayHaveANumberOfTheirOwn) {
  auto o = stages(4);
  o.decoder_first_pipeline_num_layers = 2;
  o.decoder_last_pipeline_num_layers = 4;
  EXPECT_EQ(counts(LayerPlan(o, 12)), (Counts{{2}, {3}, {3}, {4}}));
  o.num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(counts(LayerPlan(o, 14)), (Counts{{1, 1}, {2, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(mistakes(o, 12).size(), 1u);  // 3 layers are not two equal chunks
  EXPECT_EQ(mistakes(o, 13).size(), 1u);  // 7 layers for two stages
  o.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(mistakes(o, 14).size(), 1u);
}

TEST(LayerPlan, EmbeddingAndLossCanCountAsLayers) {
  auto o = stages(4);
  o.account_for_embedding_in_pipeline_split = o.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(counts(LayerPlan(o, 10)), (Counts{{2}, {3}, {3}, {2}}));
  o.virtual_pipeline_model_parallel_size = 3;
  EXPECT_EQ(counts(LayerPlan(o, 10)), (Counts{{0, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 0}}));
  o.account_for_loss_in_pipeline_split = false;
  EXPECT_EQ(mistakes(o, 10).size(), 1u);
}

TEST(LayerPlan, TheFirstStageCanHaveTheEmbeddingAlone) {
  auto o = stages(3);
  o.standalone_embedding_stage = true;
  EXPECT_EQ(counts(LayerPlan(o, 6)), (Counts{{0}, {3}, {3}}));
  o.num_layer_list.stages = {{1, 2}, {2, 1}};
  o.recompute.stages = {{1, 0}, {0, 1}};
  const LayerPlan plan(o, 6);
  EXPECT_EQ(counts(plan), (Counts{{0, 0}, {1, 2}, {2, 1}}));
  EXPECT_TRUE(plan.at(0, 0).embedding);
  EXPECT_EQ(plan.at(1, 0).recompute, (ChunkRecompute{1, 0, 0}));
  EXPECT_EQ(plan.at(2, 1).recompute, (ChunkRecompute{1, 0, 0}));
  EXPECT_EQ(plan.at(0, 0).recompute, (ChunkRecompute{}));
}

TEST(LayerPlan, ALayoutNamesEveryChunkInTheOrderOfTheForwardPass) {
  EXPECT_EQ(counts(LayerPlan(laid_out(2, "Et*3|(tt|)*2,L"), 7)), (Counts{{3, 2}, {2, 0}}));
  const LayerPlan plan(laid_out(4, "E||t t|L"), 2);
  EXPECT_EQ(counts(plan), (Counts{{0}, {0}, {2}, {0}}));
  EXPECT_TRUE(plan.at(3, 0).loss);
  EXPECT_EQ(counts(LayerPlan(laid_out(2, ""), 2)), (Counts{{1}, {1}}));  // not given
  EXPECT_EQ(read_layout("E(t*2|)*2((t|)*2t|)*2L").size(), 9u);
  // The shape of DeepSeek-V3, 61 layers over 16 stages.
  const LayerPlan large(laid_out(16, "Et*3|(tt|)*29,|mL"), 61);
  EXPECT_EQ(large.chunks(), 2);
  EXPECT_EQ(large.at(0, 0).layers, 3);
  EXPECT_EQ(large.at(13, 1), (ModelChunk{false, 59, 2, false, {}, 1, 2}));
  EXPECT_EQ(large.at(15, 1), (ModelChunk{false, 61, 0, true, {}, 1, 2}));
}

TEST(LayerPlan, ALayoutThatCannotBeReadIsRefused) {
  const auto of = [](const std::string& layout) { return mistakes(laid_out(2, layout), 4); };
  const std::string begin = "parallel_config.pipeline_model_parallel_layout: pipeline_model_parallel_layout ";
  const std::string advice = "; write it as \"Et*3|(tt|)*6L\"";
  using Lines = std::vector<std::string>;
  EXPECT_EQ(of("Ett|ttL"), Lines{});
  EXPECT_EQ(of("Ett|tL"), Lines{begin + "adds up to 3 layers; num_layers is 4; make it add up to 4"});
  EXPECT_EQ(of("Et|t|ttL"), Lines{begin + "has 3 chunks, which 2 stages do not divide; part it by | into a multiple of "
                                          "pipeline_model_parallel_size"});
  EXPECT_EQ(of("E(tt|ttL"), Lines{begin + "has a ( without its )" + advice});
  EXPECT_EQ(of("Ett)|ttL"), Lines{begin + "has a ) without its (" + advice});
  EXPECT_EQ(of("Ett|tt*L"), Lines{begin + "has a * without a number after it" + advice});
  EXPECT_EQ(of("Ett|tXL"), Lines{begin + "has 'X', which is none of E t m L | ( ) *" + advice});
  EXPECT_EQ(of("Ett|ttm*2L"), Lines{});
  for (const auto& [layout, letter] : {std::pair{"Ettm|ttL", '|'}, {"Ett|tmtL", 't'}, {"mEtt|ttL", 'E'}})
    EXPECT_EQ(of(layout), Lines{begin +
                                text("has '", letter,
                                     "' after m: layers of multi-token prediction (m) are "
                                     "computed with the loss, directly before L") +
                                advice});
  EXPECT_EQ(of("Ett|ttLm"), Lines{begin + "has a layer after the loss" + advice});
  EXPECT_EQ(of("Ett|Ltt"), Lines{begin + "has a layer after the loss" + advice});
  EXPECT_EQ(of("tt|EttL"), Lines{begin + "has the embedding elsewhere than at its beginning" + advice});
  EXPECT_EQ(of("Ett|tt"), Lines{begin + "must begin with one E and end with one L" + advice});
  EXPECT_EQ(of("E((t*999)*999|)*999L"), Lines{begin + "has more than 100000 layers" + advice});
}

TEST(LayerPlan, ALayoutHasEveryLayerOfMultiTokenPrediction) {
  const auto of = [](const std::string& layout, std::int64_t predictions) {
    std::string all;
    for (const auto& mistake : mistakes_of_predictions(laid_out(2, layout), predictions))
      all += text(mistake.option, ": ", options::sentence_of(mistake));
    return all;
  };
  const std::string begin = "parallel_config.pipeline_model_parallel_layout: pipeline_model_parallel_layout has ";
  EXPECT_EQ(of("Ett|ttmmL", 2), "");
  EXPECT_EQ(of("Ett|ttL", 0), "");
  EXPECT_EQ(of("", 2), "");      // not given: they are placed with the loss
  EXPECT_EQ(of("Ett|", 2), "");  // cannot be read, which is reported elsewhere
  EXPECT_EQ(of("Ett|ttmL", 2), begin +
                                   "1 layer of multi-token prediction (m), but mtp_num_layers is 2; write m*2 "
                                   "directly before L");
  EXPECT_EQ(of("Ett|ttL", 1), begin +
                                  "0 layers of multi-token prediction (m), but mtp_num_layers is 1; write m "
                                  "directly before L");
  EXPECT_EQ(of("Ett|ttmL", 0), begin +
                                   "1 layer of multi-token prediction (m), but mtp_num_layers is 0; leave m out, or "
                                   "give model_config.mtp_num_layers");
}

TEST(LayerPlan, AListThatDoesNotAddUpSaysItsSum) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(
      mistakes(listed({{4}, {3}}), 8),
      Lines{"parallel_config.num_layer_list: num_layer_list [[4], [3]] adds up to 7 layers; num_layers is 8; make "
            "it add up to 8"});
  EXPECT_TRUE(mistakes(listed({{0, 0}, {8, 0}}), 8).empty());
  EXPECT_EQ(
      mistakes(listed({{4, 2}, {2}}), 8),
      Lines{"parallel_config.num_layer_list: num_layer_list [[4, 2], [2]] has stages with different numbers of chunks; "
            "its inner lists have an item for each chunk"});
  auto o = listed({{4}, {4}});
  o.pipeline_model_parallel_size = 4;
  EXPECT_EQ(mistakes(o, 8), Lines{"parallel_config.num_layer_list: num_layer_list [[4], [4]] has 2 stages; "
                                  "expected 4; its outer list has an item for each stage"});
  o.pipeline_model_parallel_size = 2;
  o.virtual_pipeline_model_parallel_size = 2;
  EXPECT_EQ(mistakes(o, 8), Lines{"parallel_config.num_layer_list: num_layer_list has 1 chunk on each stage, but "
                                  "virtual_pipeline_model_parallel_size is 2; give 2 on each stage, or leave "
                                  "virtual_pipeline_model_parallel_size out"});
}

TEST(LayerPlan, MoreStagesThanLayersAreRefused) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(mistakes(stages(4), 3), Lines{"parallel_config.pipeline_model_parallel_size: num_layers is 3, fewer than 4 "
                                          "stages that each need one; give fewer stages or more layers"});
  auto o = stages(2);
  o.virtual_pipeline_model_parallel_size = 2;
  EXPECT_EQ(mistakes(o, 3),
            Lines{"parallel_config.pipeline_model_parallel_size: num_layers is 3, fewer than 2 stages of "
                  "2 chunks that each need one; give fewer stages or more layers"});
  o.pipeline_model_parallel_size = 1;
  EXPECT_EQ(
      mistakes(o, 3),
      Lines{"parallel_config.pipeline_model_parallel_size: there is one pipeline stage, but "
            "it has 2 chunks; the interleaved schedule needs two stages; give at least two stages, or one chunk"});
}

TEST(LayerPlan, TwoWordsForTheSameCutAreRefused) {
  auto o = listed({{4}, {4}});
  o.decoder_first_pipeline_num_layers = 3;
  o.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(mistakes(o, 8).size(), 2u);
  o = laid_out(2, "Ett|ttL");
  o.num_layer_list.stages = {{2}, {2}};
  EXPECT_EQ(mistakes(o, 4).size(), 1u);
  o = stages(2);
  o.virtual_pipeline_model_parallel_size = 2;
  o.num_virtual_stages_per_pipeline_rank = 1;
  EXPECT_EQ(mistakes(o, 4).size(), 1u);
}

TEST(LayerPlan, LayersThatDoNothingKeepTheirNumbers) {
  auto o = stages(2);
  o.noop_layers.ids = {7, 6};
  const LayerPlan plan(o, 8);
  EXPECT_EQ(counts(plan), (Counts{{4}, {4}}));
  EXPECT_FALSE(plan.noop(5));
  EXPECT_TRUE(plan.noop(6));
  EXPECT_EQ(plan.noop_layers(), (std::vector<std::int64_t>{6, 7}));
  o.noop_layers.ids = {8, 1, 1};
  EXPECT_EQ(mistakes(o, 8).size(), 2u);
  o.noop_layers.ids = {0, 1};
  EXPECT_EQ(mistakes(o, 2).size(), 1u);
}

TEST(LayerPlan, ListsOfRecomputationFitTheCut) {
  using Lines = std::vector<std::string>;
  auto o = listed({{2, 1}, {2, 1}});
  o.recompute.stages = {{1, 0}, {2, 1}};
  o.select_recompute.stages = {{1, 1}, {0, 0}};
  const LayerPlan plan(o, 6);
  EXPECT_EQ(plan.at(0, 0).recompute, (ChunkRecompute{1, 1, 0}));
  EXPECT_EQ(plan.at(0, 1).recompute, (ChunkRecompute{0, 1, 0}));
  EXPECT_EQ(plan.at(1, 1).recompute, (ChunkRecompute{1, 0, 0}));
  EXPECT_FALSE(LayerPlan(listed({{2, 1}, {2, 1}}), 6).at(0, 0).recompute);
  o.select_comm_recompute.stages = {{0, 0}, {1, 0}};
  EXPECT_EQ(mistakes(o, 6), Lines{"parallel_config.select_comm_recompute: stage 1 chunk 0 has 2 layers, but recompute "
                                  "and select_comm_recompute ask for 3; give at most as many as there are"});
  o.select_comm_recompute = {};
  o.recompute.stages = {{1}, {1}};
  EXPECT_EQ(mistakes(o, 6),
            Lines{"parallel_config.recompute: recompute [[1], [1]] is not a list of 2 stages of 2 chunks; "
                  "give it the form of the cut of layers, [stage][chunk]"});
}

TEST(LayerPlan, GoesThroughTheTowersInOrder) {
  const Towers towers({{"encoder", "model_config.encoder_layers", 3}, {"decoder", "model_config.decoder_layers", 4}});
  auto o = stages(2);
  o.virtual_pipeline_model_parallel_size = 2;
  const LayerPlan plan(o, towers);
  EXPECT_EQ(counts(plan), (Counts{{2, 2}, {2, 1}}));
  EXPECT_EQ(plan.drawing(),
            "stage 0 | embedding, layers encoder 0-1 | layers decoder 1-2\n"
            "stage 1 | layers encoder 2, decoder 0 | layer decoder 3, loss\n");
  const auto parts = [&](std::int64_t stage, std::int64_t chunk) { return towers.parts(plan.at(stage, chunk)); };
  using Parts = std::vector<Towers::Part>;
  EXPECT_EQ(parts(0, 0), (Parts{{0, 0, 2}}));
  EXPECT_EQ(parts(1, 0), (Parts{{0, 2, 1}, {1, 0, 1}}));
  EXPECT_EQ(parts(0, 1), (Parts{{1, 1, 2}}));
  EXPECT_FALSE(towers.begins_tower(plan.at(0, 0)));  // the embedding is before the first tower
  EXPECT_TRUE(towers.begins_tower(plan.at(1, 0)));
  EXPECT_FALSE(towers.begins_tower(plan.at(0, 1)));
  EXPECT_EQ(towers.told(plan.at(1, 0)), "encoder 2, decoder 0");
  o.pipeline_model_parallel_size = 8;
  ASSERT_EQ(LayerPlan::mistakes(o, towers).size(), 1U);
  EXPECT_EQ(LayerPlan::mistakes(o, towers)[0].message,
            "encoder_layers + decoder_layers is 7, fewer than 8 stages of 2 chunks that each need one");
}

/// Every layer of every tower is in one part of one chunk, in order, however the layers are cut.
TEST(LayerPlan, EveryLayerOfEveryTowerIsInOneChunk) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Tower> all;
    for (unsigned i = 0; i < 1 + random() % 3; ++i)
      all.push_back({text("tower", i), text("model_config.layers", i), static_cast<std::int64_t>(random() % 5)});
    const Towers towers(all);
    auto o = stages(1 + static_cast<std::int64_t>(random() % 3));
    if (o.pipeline_model_parallel_size > 1) o.virtual_pipeline_model_parallel_size = 1 + random() % 2;
    if (!LayerPlan::mistakes(o, towers).empty()) continue;
    const LayerPlan plan(o, towers);
    std::vector<std::pair<std::size_t, std::int64_t>> found, expected;
    for (std::optional<LayerPlan::ChunkIndex> at = {{0, 0}}; at; at = plan.after(*at))
      for (const auto& part : towers.parts(plan.at(at->stage, at->chunk)))
        for (auto layer = part.first; layer < part.first + part.layers; ++layer) found.emplace_back(part.tower, layer);
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::int64_t layer = 0; layer < all[i].layers; ++layer) expected.emplace_back(i, layer);
    EXPECT_EQ(found, expected) << "round " << round << "\n" << plan.drawing();
  }
}

TEST(LayerPlan, AWrongOneIsNotMade) {
  try {
    LayerPlan(listed({{4}, {3}}), 8);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("adds up to 7"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::parallel
