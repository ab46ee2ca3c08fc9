#include "framework/multimodal/llava.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/base/files.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::multimodal {
namespace {

class Llava : public InOwnFolder {
 protected:
  static LlavaConverted convert(const std::string& words) {
    write("in.json", words);
    std::filesystem::remove("out.json");
    return convert_llava({"in.json", "pictures", "out.json"});
  }
  static std::string made(const std::string& words) {
    convert(words);
    return read_file("out.json");
  }
  static void refused(const std::string& words, const std::vector<std::string>& parts) {
    expect_refused([&] { convert(words); }, parts);
    EXPECT_FALSE(std::filesystem::exists("out.json"));
    EXPECT_FALSE(std::filesystem::exists("out.json.unfinished"));
  }
  static std::string with_value(const std::string& value) {
    return R"([{"conversations": [{"from": "human", "value": )" + value + "}]}]";
  }
  static std::string written(const std::string& value) {
    const std::string before = R"([{"images": [], "messages": [{"role": "user", "content": )", after = "}]}]";
    const auto all = made(with_value(value));
    EXPECT_TRUE(all.starts_with(before) && all.ends_with(after)) << all;
    return all.substr(before.size(), all.size() - before.size() - after.size());
  }
};

TEST_F(Llava, CountsTheRecordsWhoseImageIsNotThere) {
  std::filesystem::create_directory("pictures");
  write("pictures/a.jpg", "");
  const auto counts = convert(
      R"([{"image": "a.jpg", "conversations": []}, {"image": "b.jpg"}, {"image": "a\u0000.jpg"}, {"conversations": []}])");
  EXPECT_EQ(counts.records, 2);
  EXPECT_EQ(counts.dropped, 2);
  EXPECT_EQ(read_file("out.json"),
            R"([{"images": ["pictures/a.jpg"], "messages": []}, {"images": [], "messages": []}])");
}

TEST_F(Llava, WritesEveryValueAsPythonDoes) {
  EXPECT_EQ(written("[1, -0, 1.50, 1E5, 1e16, 1e-7, {}]"), "[1, 0, 1.5, 100000.0, 1e+16, 1e-07, {}]");
  EXPECT_EQ(written(R"({"b": 1, "a": true, "b": null})"), R"({"b": null, "a": true})");
  EXPECT_EQ(written(R"("\u00e4\/\u001f\u007f\ud83d\udc08\"\\")"), "\"\u00e4/\\u001f\x7f\U0001F408\\\"\\\\\"");
  EXPECT_EQ(written("1234567890123456789012345"), "1234567890123456789012345");
}

TEST_F(Llava, RefusesAPipeBecauseItReadsTheBeginningFirst) {
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  for (const auto* name : {"pipe", "-"})
    expect_refused([&] { convert_llava({name, "pictures", "out.json"}); }, {"only once", "give a file"});
}

TEST_F(Llava, ContinuesOverTheEndsOfBlocks) {
  std::string in = "[", out = "[";
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::string(static_cast<std::size_t>(i % 211), 'a') + "\u00e4";
    in += text(i == 0 ? "\n" : ",\n ", R"({"conversations": [{"from": "gpt", "value": ")", value, "\"}]}");
    out +=
        text(i == 0 ? "" : ", ", R"({"images": [], "messages": [{"role": "assistant", "content": ")", value, "\"}]}");
  }
  EXPECT_EQ(made(in + "]\n"), out + "]");
}

TEST_F(Llava, RefusesWhatTheScriptRefusesWithItsPlace) {
  refused("", {"in.json", "empty"});
  refused("{}", {"in.json", "list"});
  refused("[1]", {"in.json:1", "object"});
  refused("[{\"conversations\": []}]x", {"in.json:1", "behind the end"});
  refused("[{\"conversations\": []},]", {"in.json:1", "object"});
  refused("[{\"conversations\": []}", {"in.json:1", "ends inside"});
  refused("[{\"conversations\": []},\n{\"a\": tru}]", {"in.json:2, record 2", "line 2, column 7"});
  refused(with_value("\"\\ud83d\""), {"record 1", "surrogate"});
  refused(with_value("{\"\\ud83d\": 1}"), {"record 1", "surrogate"});
  refused(with_value("\"\xff\""), {"UTF-8"});
  refused(with_value("\"\n\""), {"control character"});
  refused(R"([{"conversations": [{"from": "bot", "value": 1}]}])", {"turn 1", "\"bot\"", "human"});
  refused(R"([{"conversations": [{"from": "gpt"}]}])", {"turn 1", "'value'"});
  refused(R"([{"image": 7, "conversations": []}])", {"'image' is a number"});
  refused(with_value(std::string(2000, '[') + std::string(2000, ']')), {"nested"});
  refused(with_value(std::string(5000, '1')), {"5000 digits"});
}

TEST_F(Llava, ReplacesNoFile) {
  convert("[]");
  expect_refused([] { convert_llava({"in.json", "pictures", "out.json"}); }, {"out.json", "exists"});
}

}  // namespace
}  // namespace tessera::multimodal
