// The file beside token files that tells which tokenizer made them.
#include "framework/tokenizers/token_origin.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "tests/own_folder.h"
#include "tests/story.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::tokenizers {
namespace {

using TokenOrigin = InOwnFolder;

const std::vector<std::string> few = {"<unk>", "<s>", "</s>"};

/// Encodes nothing but digits, as NullTokenizer.
class Mute final : public OtherBytes {
 public:
  class Refuses final : public Encoder {
   public:
    void encode(std::string_view, std::vector<std::int32_t>&) override { throw ConfigError("no text"); }
  };
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Refuses>(); }
};

std::int64_t ids_of_sample(const std::string& prefix) {
  return parse_json(read_file(origin_file(prefix))).at("ids_of_sample").get<std::int64_t>();
}

TEST_F(TokenOrigin, IsThatOfATokenizerWhichEncodesAlike) {
  const ByteTokenizer bytes(few, ""), more({"<unk>", "<s>", "</s>", "<pad>"}, "");
  const OtherBytes other;
  write("d.bin", "1234");
  write_origin("d", bytes);
  EXPECT_EQ(other_origin("d", &bytes), "");
  EXPECT_EQ(other_origin("d", &more), "") << "it gives the same ids";
  EXPECT_EQ(other_origin("d", nullptr), "");
  const auto told = other_origin("d", &other);
  EXPECT_EQ(told.find("d.bin was made with another tokenizer than the run's: that one has 259 tokens and this one 300"),
            0U)
      << told;
}

/// Reads special tokens in a text as ordinary text.
class Splitting final : public ByteTokenizer {
 public:
  Splitting() : ByteTokenizer(few, "") {}
  bool splits_special_tokens() const override { return true; }
};

TEST_F(TokenOrigin, IsAnotherWhereSpecialTokensAreSplit) {
  const ByteTokenizer bytes(few, "");
  const Splitting splitting;
  write("d.bin", "1234");
  write("s.bin", "1234");
  write_origin("d", bytes);
  write_origin("s", splitting);
  EXPECT_EQ(other_origin("s", &splitting), "");
  const auto told = other_origin("d", &splitting);
  EXPECT_TRUE(says(told, "encodes special tokens in a text as themselves")) << told;
  EXPECT_TRUE(says(told, "change split_special_tokens")) << told;
  EXPECT_NE(other_origin("s", &bytes), "");
  const auto story = story_of([] { must_have_one_origin({"d", "s"}); });
  EXPECT_TRUE(says(story, "were made with different tokenizers")) << story;
  write("all.bin", "both");
  write_merged_origin({"d", "s"}, "all");
  EXPECT_FALSE(std::filesystem::exists(origin_file("all")));
  write(origin_file("d"), R"({"class": "ByteTokenizer", "vocab_size": 259, "bin_bytes": 4, "ids_of_sample": )" +
                              std::to_string(ids_of_sample("s")) + "}");
  EXPECT_EQ(other_origin("d", &bytes), "") << "a file of an earlier version does not tell";
  EXPECT_EQ(other_origin("d", &splitting), "");
}

TEST_F(TokenOrigin, OfFilesOfOthersIsNotKnown) {
  const ByteTokenizer bytes(few, "");
  const OtherBytes other;
  write("d.bin", "1234");
  EXPECT_EQ(other_origin("d", &other), "") << "no file";
  write_origin("d", bytes);
  write("d.bin", "123456");
  EXPECT_EQ(other_origin("d", &other), "") << "the tokens were made again, by another program";
  write("d.bin", "1234");
  EXPECT_NE(other_origin("d", &other), "");
  for (const auto* damage : {"", "{", "[]", "{\"ids_of_sample\": true}", "{\"bin_bytes\": 4, \"ids_of_sample\": 5}"}) {
    write(origin_file("d"), damage);
    EXPECT_EQ(other_origin("d", &other), "") << damage;
  }
  write_origin("d", bytes);
  const Mute mute;
  EXPECT_EQ(other_origin("d", &mute), "");
  write_origin("d", mute);
  EXPECT_FALSE(std::filesystem::exists(origin_file("d"))) << "that of other tokens would remain";
}

TEST_F(TokenOrigin, OfMergedFilesIsThatOfAll) {
  const ByteTokenizer bytes(few, "");
  const OtherBytes other;
  for (const auto* name : {"a.bin", "b.bin", "c.bin", "d.bin"}) write(name, name);
  write("all.bin", "more than one of them");
  write_origin("a", bytes);
  write_origin("b", bytes);
  write_origin("c", other);
  must_have_one_origin({"a", "b", "d"});
  write_merged_origin({"a", "b"}, "all");
  EXPECT_EQ(other_origin("all", &bytes), "");
  EXPECT_NE(other_origin("all", &other), "");
  write_merged_origin({"a", "d"}, "all");
  EXPECT_FALSE(std::filesystem::exists(origin_file("all"))) << "that of d is not known";
  const auto story = story_of([] { must_have_one_origin({"a", "d", "b", "c"}); });
  EXPECT_TRUE(says(story, "were made with different tokenizers")) << story;
}

}  // namespace
}  // namespace tessera::tokenizers
