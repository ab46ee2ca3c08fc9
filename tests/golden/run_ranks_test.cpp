#include "tests/golden/run_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <numeric>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/torch/torch_file.h"
#include "tests/own_folder.h"

namespace tessera::golden {
namespace {

class Ranks : public InOwnFolder {};

TEST_F(Ranks, StandInMegatronsOrder) {
  const RunFlags flags({"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"});
  const RunRanks ranks(flags, 8);
  EXPECT_EQ(ranks.replicas, 2);
  EXPECT_EQ(ranks.rank(1, 1, 0), 3);
  EXPECT_EQ(ranks.rank(0, 0, 1), 4);
  EXPECT_EQ(ranks.replica_of(6), 1);
  const RunRanks others(
      RunFlags({"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--use-tp-pp-dp-mapping"}),
      8);
  EXPECT_EQ(others.rank(0, 0, 1), 2);
  EXPECT_EQ(others.replica_of(6), 1);
  EXPECT_EQ(others.replica_of(3), 0);
}

/// A model of four gated layers on two tensor parallel ranks, two stages of two virtual stages each.
RunFlags cut_run() {
  return RunFlags({"--num-layers",
                   "4",
                   "--hidden-size",
                   "4",
                   "--num-attention-heads",
                   "2",
                   "--ffn-hidden-size",
                   "2",
                   "--swiglu",
                   "--disable-bias-linear",
                   "--seq-length",
                   "4",
                   "--max-position-embeddings",
                   "4",
                   "--micro-batch-size",
                   "1",
                   "--global-batch-size",
                   "2",
                   "--train-iters",
                   "1",
                   "--lr",
                   "1e-3",
                   "--tokenizer-type",
                   "NullTokenizer",
                   "--vocab-size",
                   "7",
                   "--data-path",
                   "none",
                   "--tensor-model-parallel-size",
                   "2",
                   "--pipeline-model-parallel-size",
                   "2",
                   "--num-layers-per-virtual-pipeline-stage",
                   "1"});
}

/// Element k of a rank's part of the gated product of its layer: rank and layer, chunk, k.
float element(int rank, int chunk, int k) { return static_cast<float>(100 * rank + 10 * chunk + k); }

void write_rank(int rank) {
  std::array<std::vector<float>, 2> rows;  // of each chunk: a row of the gate, one of the rest
  std::map<std::string, Tensor> tensors;
  for (int chunk = 0; chunk < 2; ++chunk) {
    auto& own = rows.at(static_cast<std::size_t>(chunk));
    for (int k = 0; k < 8; ++k) own.push_back(element(rank, chunk, k));
    tensors[text("model", chunk, ".decoder.layers.0.mlp.linear_fc1.weight")] = Tensor(std::span(own), Shape{2, 4});
  }
  checkpoint::write_safetensors(text("initial.rank", rank, ".safetensors"), tensors);
}

TEST_F(Ranks, PartsOfGatedProductsOnVirtualStagesBecomeWholeTensors) {
  const auto flags = cut_run();
  RunPlaces places;
  places.output = std::filesystem::absolute("out");
  const auto recipe = recipe_of_run(flags, places);
  const RunRanks ranks(flags, 4);
  for (const int rank : {0, 1, 2}) write_rank(rank);
  EXPECT_FALSE(whole_tensors(".", "initial", ranks, recipe)) << "rank 3 kept no file";
  write_rank(3);
  const auto whole = whole_tensors(".", "initial", ranks, recipe);
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->size(), 4U);
  for (int layer = 0; layer < 4; ++layer) {
    const auto& fc1 = whole->at(text("decoder.layers.", layer, ".mlp.linear_fc1.weight"));
    EXPECT_EQ(fc1.shape, Shape({4, 4}));
    const int stage = layer % 2, chunk = layer / 2;
    for (int row = 0; row < 4; ++row)  // the gates of both ranks, then the rest of both
      EXPECT_EQ(fc1.elements[static_cast<std::size_t>(row * 4)], element(2 * stage + row % 2, chunk, row / 2 * 4))
          << "layer " << layer << " row " << row;
  }
}

}  // namespace
}  // namespace tessera::golden
