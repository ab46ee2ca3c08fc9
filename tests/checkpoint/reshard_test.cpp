#include "framework/checkpoint/reshard.h"

#include <deque>

#include "framework/checkpoint/weight_source.h"
#include "framework/options/mappings.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Reshard : public InOwnFolder {
 protected:
  Reshard() : InOwnFolder(fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {
    add("embedding.word_embeddings.weight", {10, 4});
    for (int layer = 0; layer < 4; ++layer) {
      const auto name = text("decoder.layers.", layer, ".");
      add(name + "input_layernorm.weight", {4});
      add(name + "self_attention.linear_qkv.weight", {12, 4});
      add(name + "mlp.linear_fc1.weight", {16, 4});
      add(name + "mlp.linear_fc2.weight", {4, 8});
    }
    add("decoder.final_layernorm.weight", {4});
    save_checkpoint("run", "network", 5, ranges_, {{"resolved.yaml", "old"}, {"progress.json", "kept"}});
  }

  Checkpoint saved() const { return Checkpoint::open("run/network_iter_0000005"); }
  Checkpoint again(const Resharding& how) {
    fs::remove_all("other");
    reshard(saved(), "other", "network_", how, table_);
    auto checkpoint = Checkpoint::open("other/network_iter_0000005");
    checkpoint.verify();
    return checkpoint;
  }
  static std::vector<float> values(const Checkpoint& checkpoint, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(checkpoint.shape(name).elements()));
    checkpoint.read(whole(name, Tensor(std::span(out), checkpoint.shape(name))));
    return out;
  }
  const Value table_ = Mappings(MAPPINGS_DIR).table("weights/megatron.yaml");

 private:
  void add(const std::string& name, const Shape& shape) {
    for (const auto* mark : {"", "optimizer.exp_avg."}) {
      auto& memory = memory_.emplace_back(static_cast<std::size_t>(shape.elements()));
      for (auto& value : memory) value = static_cast<float>(++count_);
      ranges_.push_back(whole(mark + name, Tensor(std::span(memory), shape)));
    }
  }
  std::deque<std::vector<float>> memory_;
  std::vector<TensorRange> ranges_;
  int count_ = 0;
};

TEST_F(Reshard, EveryLayoutKeepsEveryElement) {
  const auto before = saved();
  for (const auto& layout : {CheckpointLayout{1, 1, {{4}}, false}, CheckpointLayout{2, 1, {{4}}, false},
                             CheckpointLayout{4, 1, {{3}, {1}}, false}, CheckpointLayout{2, 1, {{1, 1}, {1, 1}}, false},
                             CheckpointLayout{3, 1, {{4}}, false}}) {  // 3 divide little: the rest stays in one piece
    Resharding how;
    how.layout = layout;
    how.gated = true;
    const auto after = again(how);
    EXPECT_EQ(after.names(), before.names());
    for (const auto& name : before.names()) EXPECT_EQ(values(after, name), values(before, name)) << name;
    EXPECT_EQ(after.blobs(), before.blobs());
    EXPECT_EQ(after.iteration(), 5);
  }
}

TEST_F(Reshard, EveryWriterHasWhatItsRankWouldSave) {
  Resharding how;
  how.layout = {2, 1, {{2}, {2}}, false};
  how.gated = true;
  how.blobs = {{"resolved.yaml", "new"}};
  const auto after = again(how);
  const auto& gated = after.ranges("decoder.layers.2.mlp.linear_fc1.weight");
  ASSERT_EQ(gated.size(), 4U);  // gate and up of two ranks
  for (const auto& range : gated)
    EXPECT_EQ(range.file, range.offsets[0] % 8 == 0 ? "model_00002.safetensors" : "model_00003.safetensors");
  EXPECT_EQ(after.ranges("decoder.layers.2.mlp.linear_fc2.weight").size(), 2U);
  EXPECT_EQ(after.ranges("decoder.layers.0.input_layernorm.weight").size(), 1U);
  EXPECT_EQ(after.ranges("optimizer.exp_avg.embedding.word_embeddings.weight")[1].file, "optimizer_00001.safetensors");
  EXPECT_EQ(after.blob("resolved.yaml"), "new");
  EXPECT_EQ(after.blob("progress.json"), "kept");
}

TEST_F(Reshard, PaddingOfTheVocabularyComesAndGoes) {
  const std::string table = "embedding.word_embeddings.weight", state = "optimizer.exp_avg." + table;
  const auto before = saved();
  Resharding how;
  how.layout = {2, 1, {{4}}, false};
  how.vocabulary = 12;
  const auto after = again(how);
  EXPECT_EQ(after.shape(table), (Shape{12, 4}));
  auto expected = values(before, table), given = values(after, table);
  EXPECT_EQ(std::vector<float>(given.begin(), given.begin() + 40), expected);
  float mean = 0;
  for (std::size_t row = 0; row < 10; ++row) mean += expected[row * 4 + 1] / 10;
  EXPECT_FLOAT_EQ(given[10 * 4 + 1], mean);
  EXPECT_FLOAT_EQ(given[11 * 4 + 1], mean);
  expected = values(before, state);
  expected.resize(48, 0.F);
  EXPECT_EQ(values(after, state), expected);
  // Back to fewer rows than there were: 8 of the 10 are tokens.
  how.vocabulary = 8;
  EXPECT_TRUE(says(story_of([&] { again(how); }), "has 10 tokens; 8 rows would lose some of them"));
  how.true_vocabulary = 8;
  expected = values(before, state);
  expected.resize(32);
  EXPECT_EQ(values(again(how), state), expected);
}

TEST_F(Reshard, ARangeOfAnotherPaddingIsFilledFromTheRowsThereAre) {
  const std::string table = "embedding.word_embeddings.weight", state = "optimizer.exp_avg." + table;
  const auto before = saved();
  const CheckpointWeights source(before);
  const auto range = [&](const std::string& name, std::int64_t rows, std::int64_t first, std::span<float> values) {
    const auto here = static_cast<std::int64_t>(values.size()) / 4;
    return TensorRange{name, {rows, 4}, {first, 0}, Tensor(values, Shape{here, 4})};
  };
  std::vector<float> box(4 * 4, 99.F);
  EXPECT_FALSE(differs_in_padding(source, range(table, 10, 0, box), 0));
  EXPECT_TRUE(differs_in_padding(source, range(state, 12, 8, box), 0));
  EXPECT_FALSE(differs_in_padding(source, range(table, 8, 0, box), 0));  // tokens might be lost
  EXPECT_FALSE(differs_in_padding(source, range(table, 8, 0, box), 9));
  EXPECT_TRUE(differs_in_padding(source, range(table, 8, 0, box), 8));
  EXPECT_FALSE(differs_in_padding(source, range("decoder.layers.0.mlp.linear_fc2.weight", 5, 0, box), 0));

  auto whole_table = values(before, table), whole_state = values(before, state);
  EXPECT_EQ(read_other_padding(source, range(state, 12, 8, box)), state + ": 10 rows kept, 2 rows of padding zero");
  whole_state.resize(48, 0.F);
  EXPECT_EQ(box, std::vector<float>(whole_state.begin() + 32, whole_state.end()));
  EXPECT_EQ(read_other_padding(source, range(table, 8, 4, box)), table + ": 8 rows kept, 2 rows of padding left out");
  EXPECT_EQ(box, std::vector<float>(whole_table.begin() + 16, whole_table.begin() + 32));
  read_other_padding(source, range(table, 12, 8, box));
  EXPECT_EQ(std::vector<float>(box.begin(), box.begin() + 8),
            std::vector<float>(whole_table.begin() + 32, whole_table.end()));
  EXPECT_EQ(box[8], box[12]);  // the mean
}

TEST_F(Reshard, ALayoutOfFewerLayersIsRefusedAndNothingIsLeft) {
  Resharding how;
  how.layout = {1, 1, {{2}, {1}}, false};
  EXPECT_TRUE(says(story_of([&] { again(how); }), "has layer 3, and the layout 3 layers"));
  EXPECT_FALSE(fs::exists("other"));
}

}  // namespace
}  // namespace tessera
