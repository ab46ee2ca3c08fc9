// Checkpoints of several writers, whose manifests are in parts; and what a writer reads: snapshots.
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "framework/base/files.h"
#include "framework/checkpoint/coverage_sum.h"
#include "framework/checkpoint/writer.h"
#include "framework/tensor/box.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/own_folder.h"
#include "tests/random_boxes.h"
#include "tests/story.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

const fs::path folder = "run/iter_0000003";

/// Rows of a tensor "w" of 6 x 4 elements, which count from 0, and of its optimizer state.
class PartedTest : public InOwnFolder {
 protected:
  PartedTest() { std::iota(elements_.begin(), elements_.end(), 0.F); }
  std::vector<TensorRange> rows(std::int64_t first, std::int64_t count) {
    if (count == 0) return {};
    std::vector<TensorRange> out;
    for (const char* name : {"w", "optimizer.m.w"}) {
      const std::span<float> all(elements_);
      const Tensor part(all.subspan(static_cast<std::size_t>(4 * first), static_cast<std::size_t>(4 * count)),
                        Shape{count, 4});
      out.push_back({name, Shape{6, 4}, {first, 0}, part});
    }
    return out;
  }
  void save(const std::vector<std::int64_t>& counts, std::int64_t iteration = 3) {
    CheckpointWriter writer("run", "", iteration, static_cast<int>(counts.size()));
    writer.begin();
    std::vector<WrittenPart> parts;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < counts.size(); first += counts[i++])
      parts.push_back(writer.write(static_cast<int>(i), LiveState(rows(first, counts[i]))));
    writer.commit(parts, {{"state.json", "{}"}});
  }
  static fs::path hide(const fs::path& file) {
    fs::rename(file, "hidden.json");
    return "hidden.json";
  }
  static std::string trouble() {
    return story_of([] { Checkpoint::open(folder).verify(); });
  }
  std::vector<float> elements_ = std::vector<float>(24);
};

TEST_F(PartedTest, EachOfSeveralWritersHasAManifestAndTheMainOneListsThem) {
  save({2, 0, 4});
  const auto manifest = nlohmann::json::parse(read_file(folder / "manifest.json"));
  EXPECT_EQ(manifest["version"], 2);
  EXPECT_FALSE(manifest.contains("tensors") || manifest.contains("files"));
  EXPECT_EQ(manifest["index"]["w"]["parts"], (std::vector<int>{0, 1}));
  EXPECT_EQ(manifest["parts"].size(), 2U);  // writer 1 had nothing to write
  EXPECT_EQ(manifest["parts"]["manifest_00002.json"]["bytes"], fs::file_size(folder / "manifest_00002.json"));
  const auto checkpoint = Checkpoint::open(folder);
  EXPECT_NO_THROW(checkpoint.verify());
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"optimizer.m.w", "w"}));
  EXPECT_EQ(checkpoint.ranges("w").size(), 2U);
  EXPECT_EQ(checkpoint.blob("state.json"), "{}");
  for (const auto& name : checkpoint.names()) {
    std::vector<float> back(24);
    checkpoint.read(whole(name, Tensor(std::span(back), Shape{6, 4})), {.check_crc = true});
    EXPECT_EQ(back, elements_);
  }
}

TEST_F(PartedTest, ASingleWriterHasOneManifestOfTheFirstVersion) {
  save({6});
  const auto manifest = nlohmann::json::parse(read_file(folder / "manifest.json"));
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_TRUE(manifest.contains("tensors") && !manifest.contains("parts"));
  EXPECT_FALSE(fs::exists(folder / "manifest_00000.json"));
  EXPECT_EQ(trouble(), "no error");
}

TEST_F(PartedTest, EveryByteOfEveryManifestIsGuarded) {
  save({2, 4});
  for (const char* name : {"manifest.json", "manifest_00000.json", "manifest_00001.json"}) {
    const auto words = read_file(folder / name);
    const auto guarded = words.size() - (std::string(name) == "manifest.json" ? 1 : 0);  // its line end has no checksum
    for (std::size_t i = 0; i < guarded; ++i) {
      auto other = words;
      other[i] = static_cast<char>(other[i] ^ 0x10);
      write(folder / name, other);
      EXPECT_NE(trouble(), "no error") << name << " " << i;
    }
    write(folder / name, words);
  }
  EXPECT_EQ(trouble(), "no error");
}

TEST_F(PartedTest, AMissingPartAndThatOfAnotherSaveAreNamed) {
  save({2, 4});
  const auto words = read_file(folder / "manifest_00001.json");
  fs::remove(folder / "manifest_00001.json");
  EXPECT_TRUE(says(trouble(), "manifest_00001.json: is missing")) << trouble();
  write_file_atomic(folder / "manifest_00001.json", words + " ");
  EXPECT_TRUE(says(trouble(), text("manifest_00001.json: has ", words.size() + 1, " bytes; ", words.size())))
      << trouble();
  save({2, 4}, 4);
  fs::copy_file("run/iter_0000004/manifest_00001.json", folder / "manifest_00001.json",
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(says(trouble(), "manifest_00001.json: its CRC is not the one it was saved with")) << trouble();
  EXPECT_EQ(newest_good("run")->iteration(), 4);
}

TEST_F(PartedTest, WritersWithoutACommonFolderAreToldSo) {
  CheckpointWriter writer("run", "", 3, 2), of_other_host("run", "", 3, 2);
  const auto write = [&](int number) {
    return (number == 0 ? writer : of_other_host).write(number, LiveState(rows(3 * number, 3)));
  };
  const char* shared = "give training_config.output_dir a folder on a file system that all hosts share";
  const auto without = story_of([&] { write(1); });
  EXPECT_TRUE(says(without, "iter_0000003_tmp: is not here") && says(without, shared)) << without;
  writer.begin();
  const std::vector<WrittenPart> parts = {write(0), write(1)};
  fs::remove("run/iter_0000003_tmp/manifest_00001.json");  // it is on the disk of the other host
  const auto alone = story_of([&] { writer.commit(parts, {}); });
  EXPECT_TRUE(says(alone, "manifest_00001.json: is missing, though its rank") && says(alone, shared)) << alone;
}

TEST_F(PartedTest, TheIndexThatWritersPassOnIsTheOneThatTheirManifestsGive) {
  save({2, 0, 3, 1});
  const auto words = read_file(folder / "manifest.json");
  const std::vector<std::int64_t> counts = {2, 0, 3, 1};
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  std::vector<WrittenPart> parts;
  for (std::int64_t i = 0, first = 0; i < 4; first += counts[static_cast<std::size_t>(i++)]) {
    const auto number = static_cast<std::size_t>(i);
    writers.push_back(std::make_unique<CheckpointWriter>("run", "", 3, 4));
    if (i == 0) writers[0]->begin();
    parts.push_back(writers[number]->write(static_cast<int>(i), LiveState(rows(first, counts[number]))));
  }
  EXPECT_EQ(writers[1]->index(), "");
  writers[2]->add_index(writers[3]->index(), parts[3]);
  writers[0]->add_index(writers[2]->index(), parts[2]);
  writers[0]->add_index(writers[1]->index(), parts[1]);
  // The others' manifests need not be read any more.
  const auto hidden = hide("run/iter_0000003_tmp/manifest_00003.json");
  writers[0]->commit(parts, {{"state.json", "{}"}});
  EXPECT_EQ(read_file(folder / "manifest.json"), words);
  fs::rename(hidden, folder / "manifest_00003.json");
  EXPECT_EQ(trouble(), "no error");
}

TEST_F(PartedTest, AWriterWhoseManifestIsInAnotherFolderIsNamedBeforeTheCommit) {
  CheckpointWriter first("run", "", 3, 2), second("run", "", 3, 2);
  first.begin();
  const auto part = second.write(1, LiveState(rows(3, 3)));
  hide("run/iter_0000003_tmp/manifest_00001.json");
  const auto told = story_of([&] { first.add_index(second.index(), part); });
  EXPECT_TRUE(says(told, "manifest_00001.json: is missing, though its rank has written it")) << told;
}

TEST_F(PartedTest, RangesOfSeveralWritersThatLeaveAHoleAreNotCommitted) {
  EXPECT_TRUE(says(story_of([&] { save({2, 3}); }), "its ranges cover 20 of 24 elements"));
  EXPECT_FALSE(fs::exists(folder));
}

/// Ranges of zeros over several ranks.
struct Ranks {
  std::vector<float> zeros = std::vector<float>(4000);
  std::vector<std::vector<TensorRange>> of = std::vector<std::vector<TensorRange>>(4);

  void add(std::size_t rank, const std::string& name, const Shape& shape, const Box& box) {
    const Shape extents(box.extent);
    of[rank].push_back(
        {name, shape, box.begin, Tensor(std::span(zeros).first(static_cast<std::size_t>(box.elements())), extents)});
  }
  bool fits() const {
    std::vector<std::string> sums;
    for (const auto& ranges : of) sums.push_back(coverage_sum(ranges));
    return cover_exactly(sums);
  }
  std::string exact() const {
    std::vector<std::string> lists;
    for (const auto& ranges : of) lists.push_back(list_of_ranges(ranges));
    return story_of([&] { must_cover(lists); });
  }
};

TEST(CoverageSum, FindsEveryRandomDivisionWholeAndEveryFaultOfIt) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    Ranks ranks;
    for (int t = 0; t < 3; ++t) {
      std::vector<std::int64_t> dims(1 + random() % 3);
      for (auto& extent : dims) extent = 1 + static_cast<std::int64_t>(random() % 9);
      std::vector<Box> boxes;
      divide_at_random(Box::whole(Shape(dims)), random, boxes);
      for (const auto& box : boxes) ranks.add(random() % 4, text("t", t), Shape(dims), box);
    }
    ASSERT_TRUE(ranks.fits()) << "seed " << seed << " round " << round;
    ASSERT_EQ(ranks.exact(), "no error");
    auto& some = ranks.of[random() % 4];
    if (some.empty()) continue;
    auto& range = some[random() % some.size()];
    const auto kind = random() % 4;
    if (kind == 0) {  // a hole
      // Of a tensor of which nobody saves anything nothing is known.
      const auto name = range.name;
      range = some.back();
      some.pop_back();
      std::size_t left = 0;
      for (const auto& own : ranks.of)
        for (const auto& other : own) left += other.name == name ? 1 : 0;
      if (left == 0) continue;
    } else if (kind == 1) {  // saved twice
      ranks.of[random() % 4].push_back(range);
    } else if (kind == 2) {  // a rank has a larger tensor than the others
      const auto dim = random() % range.offsets.size();
      std::vector<std::int64_t> dims(range.global_shape.dims().begin(), range.global_shape.dims().end());
      ++dims[dim];
      const auto name = range.name;
      for (auto& own : some)
        if (own.name == name) own.global_shape = Shape(dims);
    } else {  // as many elements, but one box lies elsewhere
      const auto dim = random() % range.offsets.size();
      const auto room = range.global_shape[dim] - range.tensor.shape()[dim];
      if (room == 0) continue;
      range.offsets[dim] =
          (range.offsets[dim] + 1 + static_cast<std::int64_t>(random() % static_cast<std::size_t>(room))) % (room + 1);
    }
    EXPECT_FALSE(ranks.fits()) << "seed " << seed << " round " << round << " kind " << kind;
    EXPECT_NE(ranks.exact(), "no error") << "seed " << seed << " round " << round << " kind " << kind;
  }
}

TEST(CoverageSum, ATensorThatTwoRanksSaveWholeIsFoundAndScalarsAndEmptyTensorsFit) {
  Ranks ranks;
  ranks.add(0, "w", Shape{3, 2}, Box::whole(Shape{3, 2}));
  ranks.of[1].push_back(whole("scalar", Tensor(std::span(ranks.zeros).first(1), Shape{})));
  ranks.of[2].push_back(whole("nothing", Tensor(std::span(ranks.zeros).first(0), Shape{0, 4})));
  EXPECT_TRUE(ranks.fits());
  ranks.add(3, "w", Shape{3, 2}, Box::whole(Shape{3, 2}));
  EXPECT_FALSE(ranks.fits());
  EXPECT_TRUE(says(ranks.exact(), "tensor 'w': two ranges overlap")) << ranks.exact();
}

/// Gives elements only through the caller's buffer, as a snapshot does that copies
/// elements aside before they change.
class BufferedState final : public StateSnapshot {
 public:
  explicit BufferedState(std::vector<TensorRange> ranges) : StateSnapshot(std::move(ranges)) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override {
    const auto live = StateSnapshot::bytes(index, first, buffer);
    std::copy(live.begin(), live.end(), buffer.begin());
    return buffer;
  }
};

TEST_F(PartedTest, ASnapshotIsSavedAsItWasWhereverItsBytesAre) {
  elements_.resize(700'000);  // three pieces
  std::iota(elements_.begin(), elements_.end(), 0.F);
  const auto expected = elements_;
  const auto all = [&] { return std::vector{whole("w", Tensor(std::span(elements_), Shape{7, 100'000}))}; };
  const auto saved = [&](const StateSnapshot& state) {
    CheckpointWriter writer("run", "", 3);
    writer.begin();
    const auto part = writer.write(0, state);
    writer.commit({&part, 1}, {});
    std::vector<float> back(700'000);
    Checkpoint::open(folder).read(whole("w", Tensor(std::span(back), Shape{7, 100'000})), {.check_crc = true});
    return back;
  };
  EXPECT_EQ(saved(BufferedState(all())), expected);
  const CopiedState copy(all());
  for (auto& element : elements_) element += 1;
  EXPECT_EQ(saved(copy), expected);
  EXPECT_NE(saved(LiveState(all())), expected);
}

}  // namespace
}  // namespace tessera::checkpoint
