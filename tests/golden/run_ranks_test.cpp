#include "tests/golden/run_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <numeric>

#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/torch/torch_file.h"
#include "tests/golden/dist_checkpoint.h"
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

/// Writes .metadata and one .distcp file, value by value.
class DistWriter {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& size, const std::vector<std::int64_t>& offsets,
           const Tensor& part) {
    torch::TorchFileWriter writer;
    writer.tensor(part);
    writer.write("one.pt");
    const auto bytes = read_file("one.pt");
    stored_.push_back({name, size, offsets, static_cast<std::int64_t>(content_.size()), bytes.size()});
    content_ += bytes;
  }

  void write() {
    std::ofstream("__0_0.distcp", std::ios::binary) << content_;
    std::ofstream("metadata.json") << "{}";
    object("torch.distributed.checkpoint.metadata", "Metadata");
    out_.text("state_dict_metadata");
    out_.empty_dict();
    out_.mark();
    for (const auto& one : stored_) {
      out_.text(one.name);
      object("torch.distributed.checkpoint.metadata", "TensorStorageMetadata");
      out_.text("size");
      numbers(one.size);
      end();
    }
    out_.set_items();
    out_.text("storage_data");
    out_.empty_dict();
    out_.mark();
    for (const auto& one : stored_) place(one);
    out_.set_items();
    end();
    std::ofstream(".metadata", std::ios::binary) << out_.finish();
  }

 private:
  struct One {
    std::string name;
    std::vector<std::int64_t> size, offsets;
    std::int64_t begin;
    std::size_t bytes;
  };
  void object(const char* module, const char* name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.make();
    out_.empty_dict();
    out_.mark();
  }
  void end() {
    out_.set_items();
    out_.state();
  }
  void numbers(const std::vector<std::int64_t>& all) {
    out_.global("torch", "Size");
    out_.mark();
    out_.mark();
    for (const auto one : all) out_.integer(one);
    out_.tuple();
    out_.tuple();
    out_.call();
  }
  void place(const One& one) {
    object("torch.distributed.checkpoint.metadata", "MetadataIndex");
    out_.text("fqn");
    out_.text(one.name);
    out_.text("offset");
    numbers(one.offsets);
    end();
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.text("relative_path");
    out_.text("__0_0.distcp");
    out_.text("offset");
    out_.integer(one.begin);
    out_.text("length");
    out_.integer(static_cast<std::int64_t>(one.bytes));
    end();
  }

  torch::PickleWriter out_;
  std::string content_;
  std::vector<One> stored_;
};

TEST_F(Ranks, ADistributedCheckpointIsReadWhole) {
  std::vector<float> left = {0, 1, 4, 5}, right = {2, 3, 6, 7}, second = {8, 9, 10, 11, 12, 13, 14, 15}, norm = {1, 2};
  std::vector<float> master = {1.5F, 2.5F};
  const std::string fc2 = "decoder.layers.mlp.linear_fc2.weight";
  DistWriter writer;
  writer.add(fc2, {2, 2, 4}, {0, 0, 2}, Tensor(std::span(right), Shape{1, 2, 2}));
  writer.add(fc2, {2, 2, 4}, {0, 0, 0}, Tensor(std::span(left), Shape{1, 2, 2}));
  writer.add(fc2, {2, 2, 4}, {1, 0, 0}, Tensor(std::span(second), Shape{1, 2, 4}));
  writer.add("optimizer.state.fp32_param.decoder.final_layernorm.weight", {2}, {0},
             Tensor(std::span(master), Shape{2}));
  writer.add("decoder.final_layernorm.weight", {2}, {0}, Tensor(std::span(norm), Shape{2}));
  writer.add("optimizer.state.exp_avg_sq.decoder.layers.input_layernorm.bias", {2, 2}, {1, 0},
             Tensor(std::span(norm), Shape{1, 2}));
  writer.write();
  ASSERT_TRUE(is_dist_checkpoint("."));
  const auto read = read_dist_checkpoint(".", ".");
  std::vector<double> first(8);
  std::iota(first.begin(), first.end(), 0.0);
  EXPECT_EQ(read.at("decoder.layers.0.mlp.linear_fc2.weight").elements, first);
  EXPECT_EQ(read.at("decoder.layers.1.mlp.linear_fc2.weight").elements,
            std::vector<double>(second.begin(), second.end()));
  EXPECT_EQ(read.at("decoder.final_layernorm.weight").elements, (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(read.at("optimizer.exp_avg_sq.decoder.layers.1.input_layernorm.bias").elements,
            (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace tessera::golden
