// Sizes: files and tensors larger than any in memory, shares of several readers, room for a conversion.
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>

#include "framework/base/files.h"
#include "framework/checkpoint/filled_state.h"
#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/range_stream.h"
#include "framework/checkpoint/stored_state.h"
#include "framework/checkpoint/writer.h"
#include "framework/tensor/box.h"
#include "tests/own_folder.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

class SizesTest : public InOwnFolder {};

/// Elements that count from a number on.
struct Numbers {
  Shape shape;
  std::vector<float> elements;
  Tensor tensor() { return {std::span(elements), shape}; }
};

Numbers numbers(const Shape& shape, float from) {
  Numbers out{shape, std::vector<float>(static_cast<std::size_t>(shape.elements()))};
  std::iota(out.elements.begin(), out.elements.end(), from);
  return out;
}

TEST_F(SizesTest, TheSizeOfAnotherProgramsCheckpointCountsMasterWeights) {
  std::vector<float> elements(6);
  const auto range = [&](const char* name) { return whole(name, Tensor(std::span(elements), Shape{2, 3})); };
  const std::vector<TensorRange> ranges = {range("w"), range("frozen"), range("optimizer.exp_avg.w"),
                                           range("optimizer.exp_avg_sq.w")};
  save_checkpoint("run", "", 1, ranges, {});
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  ForeignSave save;
  EXPECT_EQ(bytes_of_save(save, checkpoint), 4U * 4 * 6);
  save.type = DType::bfloat16;
  EXPECT_EQ(bytes_of_save(save, checkpoint), (2U + 2 + 4 + 4 + 4 + 4) * 6);
  save.type = DType::float32;
  save.layout.distributed_optimizer = true;
  EXPECT_EQ(bytes_of_save(save, checkpoint), 6U * 4 * 6);
}

/// A checkpoint of one tensor of float32 in a sparse file, with nothing but zeros.
void save_sparse(const Shape& shape) {
  const std::uint64_t header = 1 << 12, bytes = static_cast<std::uint64_t>(shape.elements()) * sizeof(float);
  Manifest manifest;
  manifest.iteration = 1;
  manifest.files["model_00000.safetensors"] = {header + bytes, header, 0};
  manifest.tensors["t"] = {DType::float32,
                           shape,
                           {{.file = "model_00000.safetensors",
                             .byte_offset = header,
                             .bytes = bytes,
                             .offsets = std::vector<std::int64_t>(shape.rank(), 0),
                             .extents = shape,
                             .crc = 0}}};
  fs::create_directories("run/iter_0000001");
  const fs::path folder = "run/iter_0000001";
  write_file_atomic(folder / "manifest.json", write_manifest(manifest));
  std::ofstream(folder / "model_00000.safetensors").close();
  std::error_code too_large;
  fs::resize_file(folder / "model_00000.safetensors", header + bytes, too_large);
}

TEST_F(SizesTest, ElementsBehindFiveTerabytesAndItemsAboveFourGibibytesAreFound) {
  for (const auto& shape : {Shape{1'250'000, 1'000'000}, Shape{3, 500'000, 1000}, Shape{1, 1'300'000'000}}) {
    save_sparse(shape);
    const fs::path path = "run/iter_0000001/model_00000.safetensors";
    if (fs::file_size(path) < static_cast<std::uint64_t>(shape.elements())) GTEST_SKIP() << "no file of this size here";
    auto place = Box::whole(shape);
    for (std::size_t dim = 0; dim < place.begin.size(); ++dim) {
      place.begin[dim] = place.extent[dim] - 1 - place.extent[dim] / 7;
      place.extent[dim] = 1;
    }
    const auto position = position_in(Box::whole(shape), place.begin);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp((1 << 12) + position * std::int64_t{sizeof(float)});
    const float mark = 7;
    file.write(reinterpret_cast<const char*>(&mark), sizeof mark);
    file.close();
    const auto checkpoint = Checkpoint::open("run/iter_0000001");
    place.begin.back() -= 2;
    place.extent.back() = 5;
    auto found = numbers(Shape(place.extent), 1);
    checkpoint.read({"t", shape, place.begin, found.tensor()}, {});
    EXPECT_EQ(found.elements, (std::vector<float>{0, 0, 7, 0, 0})) << shape;
    const auto mapped = checkpoint.map({"t", shape, place.begin, found.tensor()}, false);
    ASSERT_TRUE(mapped);
    EXPECT_EQ(mapped->tensor.floats()[2], 7) << shape;
  }
}

TEST_F(SizesTest, SharesOfReadersHoldEachRangeOnceAndAboutAsManyBytes) {
  std::vector<Numbers> owned;
  std::vector<TensorRange> ranges;
  std::uint64_t all = 0, largest = 0;
  for (int i = 0; i < 40; ++i) {
    owned.push_back(numbers(Shape{1 + (i * 7) % 11, 16}, 0));
    ranges.push_back(whole(text("t", i), owned.back().tensor()));
    all += owned.back().tensor().bytes();
    largest = std::max<std::uint64_t>(largest, owned.back().tensor().bytes());
  }
  for (const std::size_t writers : {1, 3, 8}) {
    CheckpointWriter writer("run", "", 1, static_cast<int>(writers));
    writer.begin();
    std::vector<WrittenPart> parts;
    for (std::size_t w = 0; w < writers; ++w) {
      const auto first = ranges.begin() + static_cast<std::ptrdiff_t>(w * 40 / writers);
      const auto end = ranges.begin() + static_cast<std::ptrdiff_t>((w + 1) * 40 / writers);
      parts.push_back(writer.write(static_cast<int>(w), LiveState({first, end})));
    }
    writer.commit(parts, {});
    const auto checkpoint = Checkpoint::open_index("run/iter_0000001");
    for (const std::size_t readers : {1, 2, 3, 5, 16, 100}) {
      std::map<std::string, int> seen;
      std::size_t headers = 0;
      for (std::size_t reader = 0; reader < readers; ++reader) {
        const auto share = checkpoint.share(reader, readers, [](const auto&) { return true; });
        std::uint64_t bytes = 0;
        for (const auto& range : share.ranges) {
          ++seen[range.name];
          bytes += range.range.bytes;
        }
        headers += share.headers.size();
        EXPECT_LE(bytes, 2 * all / readers + 2 * largest) << writers << " " << readers;
      }
      EXPECT_EQ(seen.size(), 40U);
      for (const auto& [name, times] : seen) EXPECT_EQ(times, 1) << name;
      EXPECT_EQ(headers, writers);
    }
    const auto some = checkpoint.share(0, 1, [](const auto& name) { return name == "t5" || name == "t6"; });
    EXPECT_EQ(some.ranges.size(), 2U);
  }
}

TEST_F(SizesTest, ElementsThatAreMadeWhenTheyAreSavedAreMadeOnceAndOneRangeAtATime) {
  const Shape shape{3, 500'000};  // six pieces
  std::vector<TensorRange> ranges;
  for (const char* name : {"a", "b", "optimizer.m.a"})
    ranges.push_back(whole(name, Tensor::without_elements(DType::float32, shape)));
  std::vector<std::string> made;
  const FilledState state(ranges, [&](const TensorRange& into) {
    made.push_back(into.name);
    for (const auto zero : into.tensor.floats()) ASSERT_EQ(zero, 0);
    std::iota(into.tensor.floats().begin(), into.tensor.floats().end(), static_cast<float>(into.name.size()));
  });
  save_checkpoint("run", "", 1, state, {});
  EXPECT_EQ(made, (std::vector<std::string>{"a", "b", "optimizer.m.a"}));
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  for (const auto& range : ranges) {
    auto back = numbers(shape, 0);
    const auto expected = numbers(shape, static_cast<float>(range.name.size()));
    checkpoint.read(whole(range.name, back.tensor()), {.check_crc = true});
    EXPECT_EQ(back.elements, expected.elements) << range.name;
  }
  const FilledState broken(ranges, [](const TensorRange& into) {
    if (into.name == "b") throw ConfigError("not finite");
  });
  EXPECT_THROW(save_checkpoint("run", "", 2, broken, {}), ConfigError);
  EXPECT_FALSE(fs::exists("run/iter_0000002") || fs::exists("run/iter_0000002_tmp"));
}

TEST_F(SizesTest, RowsOfALargeRangeAreMadeAFewAtATime) {
  const Shape wide{7, 1'500'001}, small{2, 3};  // rows of 6 MB: two at a time, of which no piece is a multiple
  std::vector<TensorRange> ranges;
  for (const char* name : {"whole", "rows"})
    ranges.push_back(whole(name, Tensor::without_elements(DType::float32, wide)));
  ranges.push_back(whole("small", Tensor::without_elements(DType::float32, small)));
  std::vector<std::string> made;
  const auto fill = [&](const TensorRange& into) {
    made.push_back(text(into.name, " ", into.offsets[0], " ", into.tensor.shape()[0]));
    const auto first = static_cast<float>(into.offsets[0] * into.global_shape[1] % 1'000'000);
    std::iota(into.tensor.floats().begin(), into.tensor.floats().end(), first);
  };
  save_checkpoint("run", "", 1, FilledState(ranges, fill, [](const auto& range) { return range.name != "whole"; }), {});
  std::ranges::sort(made);
  EXPECT_EQ(made, (std::vector<std::string>{"rows 0 2", "rows 2 2", "rows 4 2", "rows 6 1", "small 0 2", "whole 0 7"}));
  const auto checkpoint = Checkpoint::open("run/iter_0000001");
  auto rows = numbers(wide, 0);
  checkpoint.read(whole("rows", rows.tensor()), {.check_crc = true});
  for (std::int64_t row = 0; row < wide[0]; ++row) {
    const auto first = static_cast<float>(row / 2 * 2 * wide[1] % 1'000'000) + static_cast<float>(row % 2 * wide[1]);
    EXPECT_EQ(rows.elements[static_cast<std::size_t>(row * wide[1])], first) << row;
    EXPECT_EQ(rows.elements[static_cast<std::size_t>((row + 1) * wide[1] - 1)], first + 1'500'000) << row;
  }
}

}  // namespace
}  // namespace tessera::checkpoint
