#include "framework/checkpoint/safetensors.h"

#include <cstdlib>
#include <numeric>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/copy_converted.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::checkpoint {
namespace {

using SafetensorsTest = InOwnFolder;

std::string file_with(const std::string& header, std::size_t data_bytes) {
  std::string length(8, '\0');
  for (std::size_t byte = 0; byte < 8; ++byte) length[byte] = static_cast<char>(header.size() >> (8 * byte) & 255);
  return length + header + std::string(data_bytes, 'd');
}

std::string refusal_of(const std::string& content) {
  return story_of([&] { read_safetensors_header(content, content.size(), "x.safetensors"); });
}

TEST_F(SafetensorsTest, WhatIsWrittenIsReadBack) {
  std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint8_t> bytes = {7, 8, 9};
  std::vector<std::int64_t> longs = {-1};
  write_safetensors("x.safetensors",
                    {{"b", Tensor(std::span(floats), Shape{2, 3})},
                     {"a", Tensor(std::span(bytes), Shape{3})},
                     {"c", Tensor(std::span(longs), Shape{})}},
                    {{"format", "pt"}});
  const SafetensorsReader reader("x.safetensors");
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.shape("b"), (Shape{2, 3}));
  EXPECT_EQ(reader.tensor("b").floats()[5], 6.F);
  EXPECT_EQ(reader.tensor("a").as<std::uint8_t>()[0], 7);
  EXPECT_EQ(reader.tensor("c").as<std::int64_t>()[0], -1);
  EXPECT_NE(story_of([&] { reader.tensor("d"); }).find("has no tensor 'd'"), std::string::npos);
}

TEST_F(SafetensorsTest, AFileThatIsTruncatedWhileItIsReadIsNamed) {
  std::vector<float> floats(10000, 1.F);
  write_safetensors("x.safetensors", {{"a", Tensor(std::span(floats), Shape{10000})}});
  const SafetensorsReader reader("x.safetensors");
  reader.require_intact();
  std::filesystem::resize_file("x.safetensors", 20000);
  const auto told = [&] { return story_of([&] { reader.require_intact(); }); };
  EXPECT_NE(told().find("x.safetensors: was truncated from"), std::string::npos) << told();
  EXPECT_EQ(reader.tensor("a").floats()[9999], 0.F);  // no signal ends the process
  EXPECT_NE(told().find("x.safetensors: cannot be read (SIGBUS); it was truncated"), std::string::npos) << told();
  EXPECT_NE(story_of([&] { reader.tensor("a"); }).find("SIGBUS"), std::string::npos);
}

TEST_F(SafetensorsTest, MasksOfTruthValuesAreBytes) {
  const auto content = file_with(R"({"mask":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  const auto header = read_safetensors_header(content, content.size(), "x");
  EXPECT_EQ(header.entries.at("mask").dtype, DType::uint8);
}

TEST_F(SafetensorsTest, EveryKindOfBrokenHeaderIsNamed) {
  const std::string one = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(refusal_of(file_with(one, 8)), "no error");
  EXPECT_NE(refusal_of("abc").find("3 bytes; a safetensors file begins with eight"), std::string::npos);
  EXPECT_NE(refusal_of(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)).find("its header has a length of"),
            std::string::npos);
  EXPECT_NE(refusal_of(file_with(one, 8).substr(0, 30)).find("was cut short"), std::string::npos);
  EXPECT_NE(refusal_of(file_with(one, 7)).find("tensor 't': its data end at byte"), std::string::npos);
  EXPECT_NE(refusal_of(file_with(one, 9)).find("1 bytes after tensor 't' belong to no tensor"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("[1]", 0)).find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal_of(file_with("{\"t\":", 0)).find("not a JSON object"), std::string::npos);
  const auto tensor = [](const std::string& words, std::size_t bytes = 8) {
    return refusal_of(file_with("{\"t\":" + words + "}", bytes));
  };
  EXPECT_NE(tensor("5").find("dtype, shape and data_offsets were expected"), std::string::npos);
  EXPECT_NE(tensor(R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})").find("no element type 'F8_E4M3'"),
            std::string::npos);
  EXPECT_NE(
      tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})").find("8 bytes, but shape [3] of F32 needs 12"),
      std::string::npos);
  for (const char* shape : {"[-2]", "[2.0]", "[46116860184273879440]", "[\"2\"]"})
    EXPECT_NE(tensor(text(R"({"dtype":"F32","shape":)", shape, R"(,"data_offsets":[0,8]})"))
                  .find(text("shape is ", shape == std::string("[46116860184273879440]") ? "[4.61" : shape)),
              std::string::npos)
        << shape;
  EXPECT_NE(tensor(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})").find("impossible"),
            std::string::npos);
  EXPECT_NE(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})").find("a later end"), std::string::npos);
  EXPECT_NE(tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})").find("two counts"), std::string::npos);
  EXPECT_NE(tensor(R"({"dtype":"F32","shape":[1,1,1,1,1,1,2],"data_offsets":[0,8]})").find("7 dims"),
            std::string::npos);
  const auto two = [](const std::string& a, const std::string& b, std::size_t bytes) {
    return refusal_of(file_with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                                    R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                                bytes));
  };
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "no error");
  EXPECT_NE(two("[0,4]", "[3,7]", 7).find("tensor 'b' overlaps tensor 'a'"), std::string::npos);
  EXPECT_NE(two("[0,4]", "[5,9]", 9).find("1 bytes between tensor 'a' and tensor 'b' belong to no tensor"),
            std::string::npos);
}

TEST_F(SafetensorsTest, AnIndexJoinsSeveralFiles) {
  std::vector<float> values = {1, 2, 3};
  std::filesystem::create_directory("hf");
  write_safetensors("hf/model-00001-of-00002.safetensors", {{"a", Tensor(std::span(values), Shape{3})}});
  write_safetensors("hf/model-00002-of-00002.safetensors", {{"b", Tensor(std::span(values).first(1), Shape{1})}});
  write("hf/model.safetensors.index.json",
        R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  const SafetensorsReader reader("hf");
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(reader.tensor("a").floats()[2], 3.F);
  EXPECT_EQ(reader.shape("b"), Shape{1});

  write("hf/model.safetensors.index.json", R"({"weight_map": {"c": "model-00001-of-00002.safetensors"}})");
  EXPECT_NE(story_of([] { SafetensorsReader("hf"); }).find("tensor 'c' is not in model-00001"), std::string::npos);
  for (const char* place : {"../x.safetensors", "..", ".", ""}) {
    write("hf/model.safetensors.index.json", text(R"({"weight_map": {"c": ")", place, R"("}})"));
    EXPECT_NE(story_of([] { SafetensorsReader("hf"); }).find("a file beside the index"), std::string::npos) << place;
  }
  write("hf/model.safetensors.index.json", "{}");
  EXPECT_NE(story_of([] { SafetensorsReader("hf"); }).find("no 'weight_map'"), std::string::npos);
  EXPECT_NE(story_of([] { SafetensorsReader("."); }).find("holds neither"), std::string::npos);
}

TEST_F(SafetensorsTest, ATensorOfTwoFilesIsThatOfTheFileThatTheIndexNames) {
  std::vector<float> first = {1}, second = {2};
  std::filesystem::create_directory("hf");
  for (auto* values : {&first, &second}) {
    const Tensor one{std::span(*values), Shape{1}};
    write_safetensors(values == &first ? "hf/a.safetensors" : "hf/b.safetensors",
                      {{"x", one}, {values == &first ? "a" : "b", one}});
  }
  for (const std::string file : {"a", "b"}) {
    write("hf/model.safetensors.index.json",
          R"({"weight_map": {"a": "a.safetensors", "b": "b.safetensors", "x": ")" + file + R"(.safetensors"}})");
    EXPECT_EQ(SafetensorsReader("hf").tensor("x").floats()[0], file == "a" ? 1.F : 2.F);
  }
}

TEST_F(SafetensorsTest, WhatAnIndexSaysWronglyAndWhatIsNotReadIsNoted) {
  std::vector<float> values = {1, 2, 3};
  std::filesystem::create_directory("hf");
  write_safetensors("hf/a.safetensors", {{"a", Tensor(std::span(values), Shape{3})}});
  write_safetensors("hf/b.safetensors", {{"b", Tensor(std::span(values).first(1), Shape{1})}});
  const auto notes = [](const std::string& total) {
    write("hf/model.safetensors.index.json",
          R"({"metadata": {)" + total + R"(}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}})");
    return SafetensorsReader("hf").notes();
  };
  for (const char* right : {"", R"("total_size": 16)", R"("total_size": 16.0)", R"("total_size": null)"})
    EXPECT_TRUE(notes(right).empty()) << right;
  for (const auto& [given, told] : {std::pair(R"("total_size": 17)", "17"),
                                    {R"("total_size": 1e300)", "1e+300"},
                                    {R"("total_size": "16")", "no number"}}) {
    const auto all = notes(given);
    ASSERT_EQ(all.size(), 1U) << given;
    EXPECT_TRUE(says(all[0], text("hf/model.safetensors.index.json: metadata.total_size is ", told,
                                  ", but the tensors that it names have 16 bytes")))
        << all[0];
  }
  write_safetensors("hf/c.safetensors", {{"a", Tensor(std::span(values), Shape{3})}});
  ASSERT_EQ(notes("").size(), 1U);
  EXPECT_EQ(
      notes("")[0],
      "hf/model.safetensors.index.json: names no tensor of c.safetensors beside it; what it does not name is not read");
  EXPECT_EQ(SafetensorsReader("hf").tensor("a").floats()[1], 2.F);
  write_safetensors("hf/model.safetensors", {{"a", Tensor(std::span(values), Shape{3})}});
  const SafetensorsReader one("hf");
  EXPECT_TRUE(one.unnamed().empty());
  EXPECT_EQ(one.names(), std::vector<std::string>{"a"});
  ASSERT_EQ(one.notes().size(), 1U);
  EXPECT_EQ(one.notes()[0], "hf/model.safetensors: is read, and not a.safetensors and 2 more beside it");
}

TEST_F(SafetensorsTest, ConversionRoundsFloatsAndRefusesWhatLosesMeaning) {
  std::vector<float> floats = {1.00390625F, -2.F};  // the first lies half way between two bfloat16: ties to even
  std::vector<bfloat16> halves(2);
  std::vector<double> doubles(2);
  std::vector<std::int64_t> longs = {3, 1'000'000};
  std::vector<std::int32_t> ints(2);
  std::vector<std::uint8_t> bytes(2);
  const Tensor source(std::span<float>(floats), Shape{2}), counts(std::span<std::int64_t>(longs), Shape{2});
  copy_converted(source, Tensor(std::span(halves), Shape{2}));
  EXPECT_EQ(static_cast<float>(halves[0]), 1.F);
  copy_converted(Tensor(std::span(halves), Shape{2}), Tensor(std::span(doubles), Shape{2}));
  EXPECT_EQ(doubles[1], -2.);
  copy_converted(counts, Tensor(std::span(ints), Shape{2}));
  EXPECT_EQ(ints[1], 1'000'000);
  EXPECT_NE(
      story_of([&] { copy_converted(counts, Tensor(std::span(bytes), Shape{2})); }).find("1000000 does not fit uint8"),
      std::string::npos);
  EXPECT_NE(
      story_of([&] { copy_converted(source, Tensor(std::span(ints), Shape{2})); }).find("float32 cannot become int32"),
      std::string::npos);
  EXPECT_THROW(copy_converted(source, Tensor(std::span(doubles).first(1), Shape{1})), ShapeError);
}

/// A Python that has the original library: TESSERA_TEST_PYTHON, or python3.
std::string python_with_safetensors() {
  const char* given = std::getenv("TESSERA_TEST_PYTHON");
#ifdef TESSERA_TEST_PYTHON
  if (given == nullptr) given = TESSERA_TEST_PYTHON;
#endif
  const std::string python = given != nullptr && *given != '\0' ? given : "python3";
  return std::system((python + " -c 'import safetensors.numpy' 2>/dev/null").c_str()) == 0 ? python : "";
}

TEST_F(SafetensorsTest, TheOriginalLibraryReadsTheFilesOfOurCheckpoints) {
  const auto python = python_with_safetensors();
  if (python.empty()) GTEST_SKIP() << "no python with the safetensors package; set TESSERA_TEST_PYTHON";
  std::vector<float> weight(12);
  std::iota(weight.begin(), weight.end(), 0.F);
  std::vector<std::int64_t> counts = {1, 2};
  std::vector<std::uint8_t> bytes = {3, 4, 5};
  save_checkpoint(
      "run", "", 1,
      std::vector{whole("w", Tensor(std::span(weight), Shape{3, 4})), whole("n", Tensor(std::span(counts), Shape{2})),
                  whole("b", Tensor(std::span(bytes), Shape{3})),
                  whole("optimizer.exp_avg.w", Tensor(std::span(weight), Shape{3, 4}))},
      {});
  write("check.py", R"(
import numpy
from safetensors.numpy import load_file
model = load_file("run/iter_0000001/model_00000.safetensors")
assert sorted(model) == ["b", "n", "w"], sorted(model)
assert (model["w"] == numpy.arange(12, dtype=numpy.float32).reshape(3, 4)).all()
assert model["n"].tolist() == [1, 2] and model["b"].tolist() == [3, 4, 5]
assert list(load_file("run/iter_0000001/optimizer_00000.safetensors")) == ["optimizer.exp_avg.w"]
)");
  EXPECT_EQ(std::system((python + " check.py").c_str()), 0);
}

}  // namespace
}  // namespace tessera::checkpoint
