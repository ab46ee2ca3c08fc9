#include "framework/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/writer.h"
#include "tests/checkpoint/newest_good.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Elements with memory of their own.
template <class T>
struct Owned {
  std::vector<T> elements;
  Tensor tensor;
  explicit Owned(const Shape& shape)
      : elements(static_cast<std::size_t>(shape.elements())), tensor(std::span(elements), shape) {}
};

Owned<float> counting(const Shape& shape, float from = 0) {
  Owned<float> out(shape);
  std::iota(out.elements.begin(), out.elements.end(), from);
  return out;
}

/// A model of three tensors, one of them optimizer state, and two blobs.
struct SmallModel {
  Owned<float> weight = counting(Shape{6, 8}), bias = counting(Shape{8}, 100), moment = counting(Shape{6, 8}, 1000);
  Blobs blobs = {{"state.json", "{\"step\": 5}"}, {"resolved.yaml", "a: 1\n"}};

  std::vector<TensorRange> ranges() const {
    return {whole("layer.weight", weight.tensor), whole("layer.bias", bias.tensor),
            whole("optimizer.exp_avg.layer.weight", moment.tensor)};
  }
  void save(std::int64_t iteration, const fs::path& root = "run") const {
    save_checkpoint(root, "", iteration, ranges(), blobs);
  }
};

void flip_byte(const fs::path& path, std::int64_t from_end) {
  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(size - from_end);
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(size - from_end);
  file.put(byte);
}

class CheckpointTest : public InOwnFolder {
 protected:
  SmallModel model;
  static std::vector<std::int64_t> iterations() {
    std::vector<std::int64_t> out;
    for (const auto& info : list_checkpoints("run", "")) out.push_back(info.iteration);
    return out;
  }
};

TEST_F(CheckpointTest, WhatIsSavedComesBackBitForBit) {
  Owned<float> odd(Shape{3});
  const std::array<std::uint32_t, 3> words = {0x7fc00123, 0x80000000, 0x00000001};  // a NaN, -0, the least subnormal
  std::memcpy(odd.elements.data(), words.data(), sizeof words);
  Owned<std::int64_t> counts(Shape{2});
  counts.elements = {-5, INT64_MAX};
  Owned<bfloat16> halves(Shape{2, 1});
  halves.elements = {bfloat16(1.5F), bfloat16(-2.F)};
  Owned<float> scalar = counting(Shape{}, 7), nothing(Shape{0, 4});
  const std::vector<TensorRange> saved = {whole("odd", odd.tensor), whole("counts", counts.tensor),
                                          whole("halves", halves.tensor), whole("scalar", scalar.tensor),
                                          whole("nothing", nothing.tensor)};
  save_checkpoint("run", "", 12, saved, {{"words", std::string("\0x\n", 3)}, {"empty", ""}});

  const auto checkpoint = Checkpoint::open("run/iter_0000012");
  EXPECT_EQ(checkpoint.iteration(), 12);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"counts", "halves", "nothing", "odd", "scalar"}));
  EXPECT_EQ(checkpoint.blob("words"), std::string("\0x\n", 3));
  EXPECT_EQ(checkpoint.blob("empty"), "");
  EXPECT_EQ(checkpoint.dtype("halves"), DType::bfloat16);
  for (const auto& range : saved) {
    std::vector<std::byte> memory(range.tensor.bytes(), std::byte{0xee});
    const Tensor back(memory, range.tensor.dtype(), range.tensor.shape());
    checkpoint.read(whole(range.name, back), {.check_crc = true});
    const auto saved_bytes = range.tensor.raw();
    EXPECT_TRUE(std::equal(memory.begin(), memory.end(), saved_bytes.begin(), saved_bytes.end())) << range.name;
  }
}

TEST_F(CheckpointTest, ARangeThatIsReadInPiecesIsVerifiedOnce) {
  const auto full = counting(Shape{6, 8});
  save_checkpoint("run", "", 1, std::vector{whole("w", full.tensor)}, {});
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  const auto byte = checkpoint.ranges("w")[0].byte_offset;
  const auto change = [&] {  // the last element
    std::fstream file("run/iter_0000001/model_00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(byte + 47 * sizeof(float)));
    file.put('x');
  };
  Owned<float> rows(Shape{2, 8});
  const auto read = [&](std::int64_t first, bool once) {
    checkpoint.read({"w", Shape{6, 8}, {first, 0}, rows.tensor}, {.check_crc = true, .once = once});
  };
  read(0, true);
  change();
  read(2, true);  // the whole range was verified before
  EXPECT_THROW(read(2, false), DamageError);
  EXPECT_THROW(Checkpoint::open("run/iter_0000001").read({"w", Shape{6, 8}, {0, 0}, rows.tensor}, {true, false, true}),
               DamageError);
}

TEST_F(CheckpointTest, APrefixStandsBeforeTheNameAndSeparatesRuns) {
  save_checkpoint("run", "network", 3, model.ranges(), {});
  EXPECT_TRUE(fs::exists("run/network_iter_0000003/manifest.json"));
  EXPECT_EQ(read_file("run/network_latest_checkpointed_iteration.txt"), "3");
  EXPECT_TRUE(list_checkpoints("run", "").empty());
  EXPECT_TRUE(list_checkpoints("run", "net").empty());
  EXPECT_EQ(list_checkpoints("run", "network").size(), 1U);
}

TEST_F(CheckpointTest, AnyBoxIsReadAcrossTheRangesOfOtherLayouts) {
  const auto full = counting(Shape{6, 8});
  const auto box_of = [&](const std::vector<std::int64_t>& offsets, const Shape& extents) {
    Owned<float> box(extents);
    for (std::int64_t r = 0; r < extents[0]; ++r)
      for (std::int64_t c = 0; c < extents[1]; ++c)
        box.elements[static_cast<std::size_t>(r * extents[1] + c)] =
            full.elements[static_cast<std::size_t>((offsets[0] + r) * 8 + offsets[1] + c)];
    return box;
  };
  // Four writers hold unequal quarters; one of them two pieces.
  const std::vector<std::pair<std::vector<std::int64_t>, Shape>> layout = {
      {{0, 0}, {2, 5}}, {{0, 5}, {2, 3}}, {{2, 0}, {4, 1}}, {{2, 1}, {3, 7}}, {{5, 1}, {1, 7}}};
  CheckpointWriter writer("run", "", 1, static_cast<int>(layout.size()));
  writer.begin();
  std::vector<WrittenPart> parts;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const auto box = box_of(layout[i].first, layout[i].second);
    const TensorRange range{"w", Shape{6, 8}, layout[i].first, box.tensor};
    parts.push_back(writer.write(static_cast<int>(i), LiveState({range})));
  }
  writer.commit(parts, {});

  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  int boxes = 0;
  for (std::int64_t r = 0; r < 6; ++r)
    for (std::int64_t c = 0; c < 8; ++c)
      for (std::int64_t rows = 1; r + rows <= 6; ++rows)
        for (std::int64_t columns = 1; c + columns <= 8; ++columns, ++boxes) {
          const auto expected = box_of({r, c}, Shape{rows, columns});
          Owned<float> got(Shape{rows, columns});
          checkpoint.read({"w", Shape{6, 8}, {r, c}, got.tensor}, {.check_crc = boxes % 2 == 0});
          ASSERT_EQ(got.elements, expected.elements) << r << "," << c << " " << rows << "x" << columns;
        }
  EXPECT_EQ(boxes, 21 * 36);
  EXPECT_NO_THROW(checkpoint.verify());
}

TEST_F(CheckpointTest, ATensorLargerThanAPieceIsReadInPieces) {
  const auto large = counting(Shape{700, 1000});  // 2.8 MB; pieces hold 1 MB
  save_checkpoint("run", "", 1, std::vector{whole("large", large.tensor)}, {});
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  Owned<float> back(Shape{700, 1000}), column(Shape{700, 1});
  checkpoint.read(whole("large", back.tensor), {.check_crc = true});
  EXPECT_EQ(back.elements, large.elements);
  checkpoint.read({"large", Shape{700, 1000}, {0, 999}, column.tensor}, {.check_crc = true});
  EXPECT_EQ(column.elements[699], large.elements[699999]);
  flip_byte("run/iter_0000001/model_00000.safetensors", 2'000'000);
  EXPECT_THROW(checkpoint.read(whole("large", back.tensor), {.check_crc = true}), DamageError);
  EXPECT_THROW(checkpoint.read({"large", Shape{700, 1000}, {0, 999}, column.tensor}, {.check_crc = true}), DamageError);
}

TEST_F(CheckpointTest, AnotherElementTypeIsRefusedUnlessConversionIsAskedFor) {
  model.save(1);
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  Owned<bfloat16> halves(Shape{6, 8});
  const auto story = story_of([&] { checkpoint.read(whole("layer.weight", halves.tensor)); });
  EXPECT_NE(story.find("'layer.weight' was saved as float32; bfloat16 was expected"), std::string::npos) << story;
  checkpoint.read(whole("layer.weight", halves.tensor), {.convert = true});
  EXPECT_EQ(static_cast<float>(halves.elements[47]), 47.F);
}

TEST_F(CheckpointTest, ACheckpointOfAnotherModelNamesTheFirstTensorsThatDiffer) {
  model.save(1);
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  Owned<float> wider(Shape{6, 9}), bias(Shape{8});
  const std::vector<TensorRange> wanted = {whole("layer.weight", wider.tensor), whole("layer.bias", bias.tensor),
                                           whole("head.weight", wider.tensor)};
  const auto story = story_of([&] { checkpoint.must_fit(wanted); });
  EXPECT_NE(story.find("layer.weight: [6, 9] was expected, [6, 8] was saved"), std::string::npos) << story;
  EXPECT_NE(story.find("head.weight: [6, 9] was expected, the checkpoint has no tensor"), std::string::npos) << story;
  EXPECT_EQ(story.find("layer.bias"), std::string::npos) << story;
  EXPECT_NO_THROW(checkpoint.must_fit(model.ranges()));
}

TEST_F(CheckpointTest, EveryByteOfEveryFileIsGuarded) {
  model.save(1);
  const fs::path folder = "run/iter_0000001";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 5U);  // two safetensors files, two blobs, the manifest
  for (const auto& file : files)
    for (std::int64_t from_end = 1; from_end <= static_cast<std::int64_t>(fs::file_size(file)); ++from_end) {
      flip_byte(file, from_end);
      const auto blank = file.filename() == "manifest.json" && from_end == 1;  // the line's end carries nothing
      EXPECT_TRUE(blank || story_of([&] { Checkpoint::open(folder).verify(); }) != "no error")
          << file << " " << from_end;
      flip_byte(file, from_end);
    }
  EXPECT_NO_THROW(Checkpoint::open(folder).verify());
}

// Of the size of pieces and more, unlike the test above; and of the bits, where that changes whole bytes.
TEST_F(CheckpointTest, EachOfTwoHundredRandomBitsThatFlipIsFound) {
  const auto large = counting(Shape{700, 1000}), small = counting(Shape{3, 5});  // 2.8 MB, three pieces
  save_checkpoint("run", "", 1, std::vector{whole("large", large.tensor), whole("optimizer.small", small.tensor)},
                  {{"progress.json", std::string(5000, 'p')}});
  std::vector<std::pair<fs::path, std::uint64_t>> files;
  for (const auto& entry : fs::recursive_directory_iterator("run/iter_0000001"))
    if (entry.is_regular_file()) files.emplace_back(entry.path(), entry.file_size());
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto& [path, size] = files[round % 2 == 0 ? random() % files.size() : 0];  // every other one in the largest
    auto bit = random() % (8 * size);
    if (path.filename() == "manifest.json") bit %= 8 * (size - 1);  // the line's end carries nothing
    const auto flip = [&, file = path] {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(bit / 8));
      const auto byte = stream.get();
      stream.seekp(static_cast<std::streamoff>(bit / 8));
      stream.put(static_cast<char>(byte ^ (1 << bit % 8)));
    };
    flip();
    EXPECT_THROW(Checkpoint::open("run/iter_0000001").verify(), Error) << path << " bit " << bit << ", seed " << seed;
    flip();
  }
  EXPECT_NO_THROW(Checkpoint::open("run/iter_0000001").verify());
}

TEST_F(CheckpointTest, ADamagedByteIsNamedByFileAndTensor) {
  model.save(1);
  flip_byte("run/iter_0000001/model_00000.safetensors", 5);
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  const auto story = story_of([&] { checkpoint.verify(); });
  EXPECT_NE(story.find("run/iter_0000001/model_00000.safetensors: tensor 'layer.weight' at byte"), std::string::npos)
      << story;
  Owned<float> weight(Shape{6, 8}), row(Shape{1, 8});
  EXPECT_THROW(checkpoint.read(whole("layer.weight", weight.tensor), {.check_crc = true}), DamageError);
  // The damage is in the last row; a read of the first one with a check still finds it.
  EXPECT_THROW(checkpoint.read({"layer.weight", Shape{6, 8}, {0, 0}, row.tensor}, {.check_crc = true}), DamageError);
  EXPECT_NO_THROW(checkpoint.read({"layer.weight", Shape{6, 8}, {0, 0}, row.tensor}));
}

TEST_F(CheckpointTest, ACutOrMissingFileIsFoundOnOpening) {
  model.save(1);
  model.save(2);
  model.save(3);
  fs::resize_file("run/iter_0000001/optimizer_00000.safetensors", 300);
  fs::remove("run/iter_0000002/model_00000.safetensors");
  fs::remove("run/iter_0000003/manifest.json");
  const auto story = [](const char* folder) { return story_of([&] { Checkpoint::open(folder); }); };
  EXPECT_NE(story("run/iter_0000001").find("optimizer_00000.safetensors: has 300 bytes"), std::string::npos);
  EXPECT_NE(story("run/iter_0000002").find("model_00000.safetensors: is missing"), std::string::npos);
  EXPECT_NE(story("run/iter_0000003").find("holds no manifest.json"), std::string::npos);
  EXPECT_NE(story("absent").find("absent: no such folder"), std::string::npos);
}

TEST_F(CheckpointTest, ANewerFormatIsRefusedAndNotCalledDamage) {
  model.save(1);
  const auto path = "run/iter_0000001/manifest.json";
  auto manifest = nlohmann::json::parse(read_file(path));
  manifest["version"] = 3;
  manifest.erase("manifest_crc32c");
  manifest["manifest_crc32c"] = crc_text(crc32c(manifest.dump()));
  write(path, manifest.dump());
  const auto story = story_of([] { Checkpoint::open("run/iter_0000001"); });
  EXPECT_NE(story.find("has format version 3; this program reads versions 1 and 2"), std::string::npos) << story;
  EXPECT_THROW(newest_good("run"), ConfigError);
  EXPECT_TRUE(fs::exists(path));  // not set aside
}

TEST_F(CheckpointTest, ACheckpointOfTheFirstReleaseStillLoads) {
  const auto checkpoint = Checkpoint::open(TESTS_DATA "/checkpoint/iter_0000007");
  EXPECT_NO_THROW(checkpoint.verify());
  EXPECT_EQ(checkpoint.iteration(), 7);
  EXPECT_EQ(checkpoint.blob("resolved.yaml"), "a: 1\n");
  Owned<float> weight(Shape{6, 8});
  checkpoint.read(whole("layer.weight", weight.tensor));
  EXPECT_EQ(weight.elements, model.weight.elements);
}

TEST_F(CheckpointTest, DamagedOnesAreSetAsideWithTheirReason) {
  for (const int iteration : {10, 20, 30, 40}) model.save(iteration);
  flip_byte("run/iter_0000040/model_00000.safetensors", 5);
  fs::resize_file("run/iter_0000030/model_00000.safetensors", 10);
  EXPECT_EQ(newest_good("run")->iteration(), 20);
  for (const std::string folder : {"run/iter_0000040", "run/iter_0000030"}) {
    EXPECT_THROW(Checkpoint::open(folder).verify(), DamageError);
    const auto aside = set_aside(folder, "the reason");
    EXPECT_EQ(aside, folder + "_damaged");
    EXPECT_EQ(read_file(aside / "why_damaged.txt"), "the reason\n");
    EXPECT_TRUE(fs::exists(aside / "model_00000.safetensors"));
  }
  EXPECT_EQ(iterations(), (std::vector<std::int64_t>{20, 10}));
  model.save(40);
  EXPECT_EQ(set_aside("run/iter_0000040", "again"), fs::path("run/iter_0000040_damaged_2"));
  EXPECT_FALSE(newest_good("empty"));
}

TEST_F(CheckpointTest, LeftOversAndTheTrackerMisleadNobody) {
  model.save(10);
  fs::create_directories("run/iter_0000020_tmp");
  fs::create_directories("run/iter_30");
  fs::create_directories("run/iter_0000040x");
  write("run/iter_0000050", "a file");
  write("run/latest_checkpointed_iteration.txt", "999");
  EXPECT_EQ(iterations(), std::vector<std::int64_t>{10});
  EXPECT_EQ(newest_good("run")->iteration(), 10);
}

TEST_F(CheckpointTest, WhatACrashLeftIsDeletedAndNothingElse) {
  model.save(10);
  fs::create_directories("run/iter_0000004_tmp/blobs");
  fs::create_directories("run/something_tmp");
  delete_unfinished("run", "");
  EXPECT_EQ(iterations(), std::vector<std::int64_t>{10});
  EXPECT_FALSE(fs::exists("run/iter_0000004_tmp"));
  EXPECT_TRUE(fs::exists("run/something_tmp"));
}

TEST_F(CheckpointTest, ADamagedCheckpointThatIsALinkIsSetAsideAsOne) {
  fs::create_directories("system");
  fs::create_directory("run");
  fs::create_directory_symlink("../system", "run/iter_0000007");
  set_aside("run/iter_0000007", "empty");
  EXPECT_TRUE(fs::is_empty("system"));
  EXPECT_TRUE(fs::is_symlink("run/iter_0000007_damaged"));
}

TEST_F(CheckpointTest, SavingAnIterationAgainReplacesIt) {
  model.save(5);
  model.weight.elements[0] = 77;
  model.save(5);
  Owned<float> weight(Shape{6, 8});
  Checkpoint::open("run/iter_0000005").read(whole("layer.weight", weight.tensor));
  EXPECT_EQ(weight.elements[0], 77);
  EXPECT_EQ(list_folder("run").size(), 2U);  // the checkpoint and the tracker
}

TEST_F(CheckpointTest, RangesThatLeaveAHoleOrOverlapAreNeverCommitted) {
  const auto part = counting(Shape{2, 8});
  const TensorRange first{"w", Shape{4, 8}, {0, 0}, part.tensor}, again{"w", Shape{4, 8}, {1, 0}, part.tensor};
  const auto save = [](std::vector<TensorRange> ranges) {
    return story_of([&] { save_checkpoint("run", "", 1, ranges, {}); });
  };
  EXPECT_NE(save({first}).find("'w': its ranges cover 16 of 32 elements"), std::string::npos);
  EXPECT_NE(save({first, again}).find("'w': two ranges overlap"), std::string::npos);
  EXPECT_TRUE(list_folder("run").empty());
}

TEST_F(CheckpointTest, ANameThatLeavesTheFolderIsNoBlob) {
  for (const char* name : {"../x", "a/../b", "a/b/c", "/x", "a/", "a/.hidden", "", ".hidden"})
    EXPECT_THROW(save_checkpoint("run", "", 1, model.ranges(), {{name, "x"}}), BugError) << name;
}

/// A file system of 256 KB, so that a disk can be filled. Needs the right to mount.
class SmallDisk {
 public:
  SmallDisk() {
    fs::create_directory("disk");
    mounted_ = ::mount("tmpfs", "disk", "tmpfs", 0, "size=256k") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2("disk", MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  bool mounted_ = false;
};

TEST_F(CheckpointTest, AFullDiskLeavesTheLastGoodOneAndNoHalfOne) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "only a user who may mount can fill a disk of its own";
  const auto large = counting(Shape{30000});  // 120 KB: the first fits, the second does not
  const std::vector<TensorRange> ranges = {whole("large", large.tensor)};
  save_checkpoint("disk/run", "", 1, ranges, {{"x", "y"}});
  const auto story = story_of([&] {
    save_checkpoint("disk/run", "", 2, ranges, {{"big", std::string(100'000, 'x')}});
  });
  EXPECT_NE(story.find("No space left on device"), std::string::npos) << story;
  EXPECT_NE(story.find("while saving checkpoint disk/run/iter_0000002"), std::string::npos) << story;
  EXPECT_FALSE(fs::exists("disk/run/iter_0000002_tmp"));
  EXPECT_FALSE(fs::exists("disk/run/iter_0000002"));
  EXPECT_EQ(newest_good("disk/run")->iteration(), 1);
  EXPECT_EQ(read_file("disk/run/latest_checkpointed_iteration.txt"), "1");
  save_checkpoint("disk/run", "", 3, ranges, {});  // the next one that fits is saved again
  EXPECT_EQ(newest_good("disk/run")->iteration(), 3);
}

TEST_F(CheckpointTest, ARootThatIsNoFolderIsAnErrorOfTheSystem) {
  write("taken", "a file");
  EXPECT_THROW(model.save(1, "taken"), IoError);
  EXPECT_EQ(read_file("taken"), "a file");
}

// A run that resumes learns that optimizer state is missing before it reads anything.
TEST_F(CheckpointTest, NativeCheckpointsNameTheOptimizerStateThatTheyDoNotHave) {
  save_checkpoint("run", "", 5, model.ranges(), model.blobs);
  const NativeCheckpoint saved(Checkpoint::open("run/iter_0000005"));
  EXPECT_EQ(saved.optimizer_names(), std::vector<std::string>{"optimizer.exp_avg.layer.weight"});
  const std::vector<TensorRange> held = {whole("optimizer.exp_avg.layer.weight", model.moment.tensor)};
  EXPECT_NO_THROW(saved.must_fit_optimizer(held));
  const std::vector<TensorRange> missing = {whole("optimizer.exp_avg_sq.layer.weight", model.moment.tensor)};
  const auto story = story_of([&] { saved.must_fit_optimizer(missing); });
  EXPECT_TRUE(says(story, "optimizer.exp_avg_sq.layer.weight")) << story;
}

}  // namespace
}  // namespace tessera::checkpoint
