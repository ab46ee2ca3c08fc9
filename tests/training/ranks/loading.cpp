// Loading by several ranks together: each stored byte is read once, and damage is found by all.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <random>

#include "framework/base/files.h"
#include "framework/checkpoint/writer.h"
#include "framework/training/saving/shared_loading.h"
#include "tests/ranks/ranks.h"
#include "tests/story.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;

/// Bytes that this process has read from files through system calls.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return std::stoll(words.substr(words.find("rchar: ") + 7));
}

/// Random boxes of a few tensors whose elements are their positions in them.
class LoadByRanks : public testing::Test {
 protected:
  LoadByRanks() {
    std::string name = testing::TempDir() + "tessera.XXXXXX";
    if (group.rank() == 0) name = mkdtemp(name.data());
    root = group.broadcast(name, 0, "a folder");
    seed = static_cast<unsigned>(std::stoul(group.broadcast(std::to_string(std::random_device()()), 0, "a seed")));
    common.seed(seed);
    own.seed(seed + 1 + static_cast<unsigned>(group.rank()));
  }
  ~LoadByRanks() override {
    group.barrier("the end of a test");
    if (group.rank() == 0) fs::remove_all(root);
  }

  checkpoint::TensorRange range(const std::string& name, const Shape& shape, const Box& box, bool filled) {
    auto& elements = memory.emplace_back(static_cast<std::size_t>(box.elements()), -1.F);
    const checkpoint::TensorRange out{name, shape, box.begin, Tensor(std::span(elements), Shape(box.extent))};
    if (filled) visit(out, [](float& element, float position) { element = position; });
    return out;
  }
  template <class Visit>
  static void visit(const checkpoint::TensorRange& range, const Visit& visitor) {
    const auto box = Box::of(range.offsets, range.tensor.shape());
    auto place = box.begin;
    for (auto& element : range.tensor.floats()) {
      visitor(element, static_cast<float>(position_in(Box::whole(range.global_shape), place) % 1'000'003));
      for (auto dim = place.size(); dim-- > 0;) {
        if (++place[dim] < box.begin[dim] + box.extent[dim]) break;
        place[dim] = box.begin[dim];
      }
    }
  }
  Box random_box(const Shape& shape) {
    auto box = Box::whole(shape);
    for (std::size_t dim = 0; dim < box.extent.size(); ++dim) {
      box.begin[dim] = static_cast<std::int64_t>(own() % static_cast<std::size_t>(box.extent[dim]));
      box.extent[dim] =
          1 + static_cast<std::int64_t>(own() % static_cast<std::size_t>(box.extent[dim] - box.begin[dim]));
    }
    return box;
  }
  /// Rank 0 saves tensors of `shapes`, "t0" and so on, by `writers` writers that have rows or columns of them.
  fs::path save(const std::vector<Shape>& shapes, std::int64_t writers, std::int64_t iteration) {
    const auto folder = root / checkpoint::checkpoint_name("", iteration);
    if (group.rank() == 0) {
      checkpoint::CheckpointWriter writer(root, "", iteration, static_cast<int>(writers));
      writer.begin();
      std::vector<checkpoint::WrittenPart> parts;
      for (std::int64_t w = 0; w < writers; ++w) {
        std::vector<checkpoint::TensorRange> ranges;
        for (std::size_t t = 0; t < shapes.size(); ++t) {
          auto box = Box::whole(shapes[t]);
          const auto dim = t % box.extent.size();
          const auto all = box.extent[dim];
          box.begin[dim] = w * all / writers;
          box.extent[dim] = (w + 1) * all / writers - box.begin[dim];
          if (box.extent[dim] > 0) ranges.push_back(range(text("t", t), shapes[t], box, true));
        }
        parts.push_back(writer.write(static_cast<int>(w), checkpoint::LiveState(std::move(ranges))));
      }
      writer.commit(parts, {});
    }
    group.barrier("a checkpoint");
    return folder;
  }

  comm::Communicator group = world().all();
  fs::path root;
  unsigned seed = 0;
  std::mt19937 common, own;
  std::deque<std::vector<float>> memory;
};

TEST_F(LoadByRanks, RandomBoxesComeFromTheFilesOfAnyNumberOfWriters) {
  for (int round = 0; round < 20; ++round) {
    const auto told = text("seed ", seed, " round ", round);
    std::vector<Shape> shapes;
    for (int t = 0; t < 4; ++t) {
      std::vector<std::int64_t> dims(1 + common() % 3);
      for (auto& extent : dims) extent = 1 + static_cast<std::int64_t>(common() % 40);
      shapes.emplace_back(dims);
    }
    const auto folder = save(shapes, 1 + common() % 9, round);
    std::vector<checkpoint::TensorRange> wanted;
    for (auto wants = own() % 6; wants > 0; --wants) {
      const auto t = own() % shapes.size();
      wanted.push_back(range(text("t", t), shapes[t], random_box(shapes[t]), false));
    }
    const auto from = checkpoint::Checkpoint::open_index(folder);
    const auto bytes = std::size_t{1} << (common() % 25);  // the smaller, the more messages
    ASSERT_EQ(load_shared(group, from, wanted, true, bytes), "") << told;
    for (const auto& one : wanted)
      visit(one, [&](float element, float position) { ASSERT_EQ(element, position) << told; });
  }
}

TEST_F(LoadByRanks, EachByteIsReadOnceOverAllRanksWhateverTheyWant) {
  const std::vector<Shape> shapes = {Shape{600, 500}, Shape{300, 1000}, Shape{1, 700'000}};
  std::int64_t stored = 0;
  for (const auto& shape : shapes) stored += shape.elements() * std::int64_t{sizeof(float)};
  for (const std::int64_t writers : {1, group.size(), 4 * group.size()}) {
    const auto folder = save(shapes, writers, writers);
    std::vector<checkpoint::TensorRange> wanted;
    for (std::size_t t = 0; t < 2; ++t) {
      wanted.push_back(range(text("t", t), shapes[t], Box::whole(shapes[t]), false));
      auto half = Box::whole(shapes[t]);
      half.extent[1 - t] /= 2;
      wanted.push_back(range(text("t", t), shapes[t], half, false));
    }
    const auto from = checkpoint::Checkpoint::open_index(folder);
    group.barrier("before");
    const auto before = bytes_read();
    ASSERT_EQ(load_shared(group, from, wanted, true), "");
    std::vector<double> read = {static_cast<double>(bytes_read() - before)};
    const auto mine = read[0];
    group.all_reduce(std::span(read), "bytes");
    // Messages may go through pipes; the manifests of the parts are small. Nobody wants t2.
    const auto data = static_cast<double>(stored - shapes[2].elements() * std::int64_t{sizeof(float)});
    EXPECT_GE(read[0], data);
    EXPECT_LT(read[0], 1.2 * data) << writers;
    EXPECT_TRUE(writers == 1 || mine < 1.3 * data / group.size()) << mine << " of " << data;
    for (const auto& one : wanted) visit(one, [&](float element, float position) { ASSERT_EQ(element, position); });
  }
}

TEST_F(LoadByRanks, DamageThatOneRankFindsAllRanksTellAlike) {
  const std::vector<Shape> shapes = {Shape{60, 50}, Shape{30, 100}};
  for (const std::int64_t writers : {1, 5}) {
    const auto folder = save(shapes, writers, writers);
    std::vector<fs::path> files;
    for (const auto& entry : list_folder(folder))
      if (entry.filename() != "manifest.json") files.push_back(entry);
    for (const auto& victim : files) {
      const auto words = read_file(victim);
      for (const auto at : {std::size_t{9}, words.size() / 2, words.size() - 2}) {
        group.barrier("damage");
        if (group.rank() == 0) {
          auto other = words;
          other[at] = static_cast<char>(other[at] ^ 0x10);
          write_file_atomic(victim, other);
        }
        group.barrier("damage");
        std::vector<checkpoint::TensorRange> wanted;
        for (std::size_t t = 0; t < shapes.size(); ++t)
          if (group.rank() != 0) wanted.push_back(range(text("t", t), shapes[t], Box::whole(shapes[t]), false));
        const auto damage = load_shared(group, checkpoint::Checkpoint::open_index(folder), wanted, true, 1);
        EXPECT_TRUE(says(damage, victim.filename().string())) << victim << " " << at << ": " << damage;
        for (const auto& other : group.all_gather(damage, "damage")) EXPECT_EQ(other, damage);
      }
      group.barrier("damage");
      if (group.rank() == 0) write_file_atomic(victim, words);
      group.barrier("damage");
    }
    if (group.rank() == 0) fs::resize_file(files.back(), fs::file_size(files.back()) - 1);
    group.barrier("damage");
    const auto cut = damage_found(group, [&] {
      const auto from = checkpoint::Checkpoint::open_index(folder);
      from.share(static_cast<std::size_t>(group.rank()), static_cast<std::size_t>(group.size()),
                 [](const auto&) { return true; });
    });
    EXPECT_TRUE(says(cut, "were saved")) << cut;
  }
}

TEST_F(LoadByRanks, AnotherErrorIsThatOfTheRankThatHadIt) {
  const auto told = story_of([&] {
    damage_found(group, [&] {
      if (group.rank() == 1) throw ConfigError("another model");
    });
  });
  EXPECT_TRUE(says(told, "another model")) << told;
}

}  // namespace
}  // namespace tessera::training
