#include "framework/checkpoint/reshard.h"

#include <algorithm>
#include <deque>
#include <random>

#include "framework/checkpoint/room.h"
#include "framework/checkpoint/weight_source.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::checkpoint {
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
  /// A division over so many writers: every weight is cut at random places, linear_fc2 by columns and the others by
  /// rows. The word embedding gets `rows`.
  Resharding divided(std::size_t writers, std::int64_t rows = 10) {
    Resharding how;
    how.writers.resize(writers);
    const auto before = saved();
    for (const auto& name : CheckpointWeights(before).names()) {
      WeightPart all{name, ParameterRole::matrix, before.shape(name), {}};
      if (name == table) all.role = ParameterRole::word_embedding, all.global_shape = {rows, 4};
      const std::size_t dim = name.ends_with("linear_fc2.weight") ? 1 : 0;
      std::int64_t begin = 0;
      for (std::size_t w = 0; w < writers; ++w) {
        const auto left = all.global_shape[dim] - begin;
        const auto here = w + 1 == writers ? left : static_cast<std::int64_t>(random_() % 5) % (left + 1);
        if (here == 0) continue;
        how.writers[w].push_back(all);
        auto& box = how.writers[w].back().boxes.emplace_back(Box::whole(all.global_shape));
        box.begin[dim] = begin;
        box.extent[dim] = here;
        begin += here;
      }
    }
    return how;
  }
  Checkpoint again(const Resharding& how) {
    fs::remove_all("other");
    reshard(saved(), "other", "network_", how);
    auto checkpoint = Checkpoint::open("other/network_iter_0000005");
    checkpoint.verify();
    return checkpoint;
  }
  static std::vector<float> values(const Checkpoint& checkpoint, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(checkpoint.shape(name).elements()));
    checkpoint.read(whole(name, Tensor(std::span(out), checkpoint.shape(name))));
    return out;
  }
  const std::string table = "embedding.word_embeddings.weight", state = "optimizer.exp_avg." + table;
  const unsigned seed = std::random_device{}();

 private:
  void add(const std::string& name, const Shape& shape) {
    for (const auto* mark : {"", "optimizer.exp_avg."}) {
      auto& memory = memory_.emplace_back(static_cast<std::size_t>(shape.elements()));
      for (auto& value : memory) value = static_cast<float>(++count_);
      ranges_.push_back(whole(mark + name, Tensor(std::span(memory), shape)));
    }
  }
  std::mt19937 random_{seed};
  std::deque<std::vector<float>> memory_;
  std::vector<TensorRange> ranges_;
  int count_ = 0;
};

TEST_F(Reshard, EveryDivisionKeepsEveryElement) {
  SCOPED_TRACE(text("seed ", seed));
  const auto before = saved();
  for (const std::size_t writers : {1, 2, 3, 5, 8}) {
    const auto after = again(divided(writers));
    EXPECT_EQ(after.names(), before.names());
    for (const auto& name : before.names()) EXPECT_EQ(values(after, name), values(before, name)) << name;
    EXPECT_EQ(after.blobs(), before.blobs());
    EXPECT_EQ(after.iteration(), 5);
  }
}

TEST_F(Reshard, EveryWriterSavesItsBoxesAndTheirOptimizerState) {
  SCOPED_TRACE(text("seed ", seed));
  auto how = divided(3);
  how.blobs = {{"resolved.yaml", "new"}};
  const auto after = again(how);
  for (std::size_t w = 0; w < how.writers.size(); ++w)
    for (const auto& saved : how.writers[w])
      for (const auto& [mark, file] : {std::pair{"", "model"}, {"optimizer.exp_avg.", "optimizer"}}) {
        const auto expected = text(file, "_0000", w, ".safetensors");
        const auto& ranges = after.ranges(mark + saved.name);
        EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(),
                                [&](const auto& range) {
                                  return Box::of(range.offsets, range.extents) == saved.boxes[0] &&
                                         range.file == expected;
                                }))
            << mark << saved.name << " of writer " << w;
      }
  EXPECT_EQ(after.blob("resolved.yaml"), "new");
  EXPECT_EQ(after.blob("progress.json"), "kept");
}

TEST_F(Reshard, PaddingOfTheVocabularyComesAndGoes) {
  SCOPED_TRACE(text("seed ", seed));
  const auto before = saved();
  const auto after = again(divided(2, 12));
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
  auto how = divided(2, 8);
  EXPECT_TRUE(says(story_of([&] { again(how); }), "has 10 tokens; 8 rows would lose some of them"));
  how.true_vocabulary = 8;
  expected = values(before, state);
  expected.resize(32);
  EXPECT_EQ(values(again(how), state), expected);
}

TEST_F(Reshard, ARangeOfAnotherPaddingIsFilledFromTheRowsThereAre) {
  const auto before = saved();
  const CheckpointWeights source(before);
  const auto range = [&](const std::string& name, std::int64_t rows, std::int64_t first, std::span<float> elements) {
    const auto here = static_cast<std::int64_t>(elements.size()) / 4;
    const auto role = name.ends_with(table) ? ParameterRole::word_embedding : ParameterRole::matrix;
    return TensorRange{.name = name,
                       .global_shape = {rows, 4},
                       .offsets = {first, 0},
                       .tensor = Tensor(elements, Shape{here, 4}),
                       .role = role};
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

TEST_F(Reshard, AllWeightsAreReadWithAnotherPaddingIfTheTokensAreKnown) {
  const auto before = saved();
  const CheckpointWeights source(before);
  const auto load = [&](std::int64_t rows, std::int64_t tokens) {
    std::deque<std::vector<float>> memory;
    std::vector<TensorRange> wanted;
    for (const auto& name : source.names()) {
      const auto shape = name == table ? Shape{rows, 4} : source.shape(name);
      auto& elements = memory.emplace_back(static_cast<std::size_t>(shape.elements()));
      wanted.push_back(whole(name, Tensor(std::span(elements), shape),
                             name == table ? ParameterRole::word_embedding : ParameterRole::matrix));
    }
    const auto notes = load_all(source, wanted, with_paddings_of(source, wanted, tokens));
    EXPECT_EQ(notes.size(), rows == 10 ? 0U : 1U);
    for (const auto& range : wanted) {
      auto expected = values(before, range.name);
      const auto count = std::min<std::size_t>(expected.size(), range.tensor.floats().size());
      EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(count),
                             range.tensor.floats().begin()))
          << range.name;
    }
    return notes.empty() ? "" : notes[0];
  };
  EXPECT_EQ(load(10, 0), "");
  EXPECT_EQ(load(12, 0), table + ": 10 rows kept, 2 rows of padding filled with their mean");
  EXPECT_EQ(load(8, 7), table + ": 8 rows kept, 2 rows of padding left out");
  for (const std::int64_t tokens : {0, 9})
    EXPECT_TRUE(says(story_of([&] { load(8, tokens); }), "refused, for tokens may be among the 2 rows")) << tokens;
}

TEST(Room, ADiskWithoutRoomIsNamedBeforeAnythingIsWritten) {
  EXPECT_NO_THROW(must_have_room("new/folder", 1));
  EXPECT_THROW(must_have_room("new/folder", std::uint64_t{1} << 62), IoError);
  EXPECT_TRUE(says(story_of([] { must_have_room("new/folder", std::uint64_t{1} << 62); }),
                   "new/folder: the checkpoint needs 4611686018427387904 bytes, and its disk has "));
  EXPECT_FALSE(fs::exists("new"));
}

TEST_F(Reshard, AnotherModelIsRefusedAndNothingIsLeft) {
  const std::string norm = "decoder.final_layernorm.weight";
  auto how = divided(1);
  auto& own = how.writers[0];
  const auto of_norm = std::find_if(own.begin(), own.end(), [&](const auto& saved) { return saved.name == norm; });
  ASSERT_NE(of_norm, own.end());
  const auto kept = *of_norm;
  own.erase(of_norm);
  EXPECT_TRUE(says(story_of([&] { again(how); }), norm + " is in it, but not in the model of the new layout"));
  own.push_back({norm, ParameterRole::norm_gain, {8}, {{{0}, {8}}}});
  EXPECT_TRUE(says(story_of([&] { again(how); }), norm + " is [4], and [8] in the model of the new layout"));
  own.back() = kept;
  own.push_back({"output_layer.weight", ParameterRole::output_layer, {10, 4}, {{{0, 0}, {10, 4}}}});
  EXPECT_TRUE(says(story_of([&] { again(how); }), "output_layer.weight is in the model of the new layout, but not in"));
  EXPECT_FALSE(fs::exists("other"));
}

}  // namespace
}  // namespace tessera::checkpoint
