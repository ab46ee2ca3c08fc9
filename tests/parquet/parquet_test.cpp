#include "framework/parquet/parquet.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "framework/base/files.h"
#include "framework/parquet/parquet_codec.h"
#include "framework/parquet/parquet_json.h"
#include "framework/parquet/parquet_thrift.h"
#include "framework/parquet/to_jsonl.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::parquet {
namespace {

using Columns = std::vector<std::string>;
using Parquet = InOwnFolder;

std::string recorded_file(const std::string& name) { return std::string(TESTS_DATA "/parquet/") + name; }

std::string lines_of(const std::string& name, const Columns& columns = {}, const ParquetLimits& limits = {}) {
  ParquetReader reader(name, columns, limits);
  JsonRow row;
  std::string out;
  while (reader.next(row)) out += row.line() + "\n";
  EXPECT_EQ(reader.rows_read(), reader.rows());
  EXPECT_EQ(reader.position(), reader.size());
  return out;
}

TEST_F(Parquet, RecordedFilesAreReadAsPyarrowReadsThem) {
  for (const auto* name : {"alpaca", "deltas", "empty"})
    EXPECT_EQ(lines_of(recorded_file(name) + ".parquet"), read_file(recorded_file(name) + ".jsonl")) << name;
  for (const auto* name : {"nested_snappy", "nested_zstd_v2", "nested_gzip", "nested_plain_v2"})
    EXPECT_EQ(lines_of(recorded_file(name) + ".parquet"), read_file(recorded_file("nested.jsonl"))) << name;
}

TEST_F(Parquet, ColumnsAreChosenByNameOrPath) {
  const auto file = recorded_file("nested_snappy.parquet");
  const auto first = [&](const std::string& column) {
    const auto lines = lines_of(file, Columns{column});
    return lines.substr(0, lines.find('\n'));
  };
  EXPECT_EQ(first("flag"), R"({"flag": true})");
  EXPECT_EQ(first("conversations.value"), R"({"conversations.value": ["Hi", null]})");
  EXPECT_EQ(first("conversations.list.element.from"), R"({"conversations.list.element.from": ["human", "gpt"]})");
  const auto two = lines_of(file, Columns{"text", "flag"});
  EXPECT_EQ(two.substr(0, two.find('\n')), R"({"text": "", "flag": true})");
  expect_refused([&] { (void)first("txt"); }, {file, "no column 'txt'", "text, list, deep, conversations.from"});
  expect_refused([&] { (void)first("conversations.valu"); }, {"no column 'conversations.valu'"});
  expect_refused([&] { (void)lines_of(file, {"text", "text"}); }, {file, "column 'text' is given twice"});
  expect_refused([&] { (void)first("text.x"); }, {"no column 'text.x'"});
}

TEST_F(Parquet, TextsOfRowsAreDocuments) {
  std::vector<std::vector<std::string>> texts;
  {
    ParquetTexts rows(recorded_file("alpaca.parquet"), Columns{"output", "instruction"});
    ASSERT_TRUE(rows.next(texts));
    EXPECT_EQ(texts, (std::vector<std::vector<std::string>>{{"7"}, {"Name a prime."}}));
    ASSERT_TRUE(rows.next(texts));
    ASSERT_TRUE(rows.next(texts));
    EXPECT_EQ(texts[0], Columns{"\xC3\xA9 \xE6\xBC\xA2 \xF0\x9D\x84\x9E\n\tdone\\"});
    EXPECT_FALSE(rows.next(texts));
  }
  ParquetTexts lists(recorded_file("nested_gzip.parquet"), Columns{"conversations.from"});
  ASSERT_TRUE(lists.next(texts));
  EXPECT_EQ(texts, (std::vector<std::vector<std::string>>{{"human", "gpt"}}));
  ASSERT_TRUE(lists.next(texts));
  EXPECT_EQ(texts, (std::vector<std::vector<std::string>>{{}}));
  expect_refused([&] { lists.next(texts); },
                 {"nested_gzip.parquet: row group 0, row 2: column 'conversations.from' is null; expected a text"});
  ParquetTexts groups(recorded_file("nested_snappy.parquet"), Columns{"text"});
  ASSERT_TRUE(groups.next(texts));
  ASSERT_TRUE(groups.next(texts));
  expect_refused([&] { groups.next(texts); }, {"row group 0, row 2", "null"});
  for (const auto* column : {"flag", "deep", "map", "conversations", "double"})
    expect_refused([&] { ParquetTexts(recorded_file("nested_gzip.parquet"), Columns{column}); },
                   {"nested_gzip.parquet", column, "neither texts nor lists of texts"});
}

TEST_F(Parquet, WhatIsNotSupportedIsNamed) {
  const auto read = [](const std::string& name, const Columns& columns) {
    return [=] { (void)lines_of(recorded_file(name + ".parquet"), columns); };
  };
  expect_refused(read("brotli", {}), {"brotli.parquet: row group 0, column 'text'", "Brotli", "Snappy"});
  expect_refused(read("lz4", {}), {"LZ4", "not supported"});
  expect_refused(read("split", {}), {"row group 0, column 'number'", "BYTE_STREAM_SPLIT", "PLAIN"});
  expect_refused(read("types", {}), {"column 'time'", "TIMESTAMP", "name the columns"});
  expect_refused(read("types", {"price"}), {"column 'price'", "DECIMAL"});
  expect_refused(read("types", {"fixed"}), {"column 'fixed'", "FIXED_LEN_BYTE_ARRAY"});
  expect_refused(read("types", {"not_finite"}), {"row group 0, row 0: column 'not_finite' holds nan", "JSON"});
  expect_refused(read("types", {"bytes"}), {"row 0: column 'bytes'", "not UTF-8, from byte 0 of 1"});
  EXPECT_EQ(lines_of(recorded_file("types.parquet"), Columns{"text", "null"}), "{\"text\": \"a\", \"null\": null}\n");
}

TEST_F(Parquet, WhatIsNoParquetIsRefused) {
  const auto good = read_file(recorded_file("alpaca.parquet"));
  const auto open = [](const std::string& bytes) {
    return [=] {
      write("x.parquet", bytes);
      (void)lines_of("x.parquet");
    };
  };
  EXPECT_NO_THROW(open(good)());
  expect_refused([] { (void)lines_of("absent.parquet"); }, {"absent.parquet", "cannot be read"});
  expect_refused(open(""), {"x.parquet", "not a Parquet file", "0 bytes"});
  expect_refused(open("{\"text\": \"a\"}\n"), {"x.parquet", "not a Parquet file"});
  expect_refused(open(good.substr(0, good.size() - 1)), {"not a Parquet file or is cut off"});
  expect_refused(open(good.substr(0, good.size() - 1) + "E"), {"encrypted"});
  expect_refused(open("PAR1\xFF\xFF\xFF\x7FPAR1"), {"footer of 2147483647 bytes"});
  expect_refused(open(good.substr(good.size() - 900)), {"x.parquet", "ends at byte"});
  write("y.parquet", good);
  write("y.txt", "PAR");
  EXPECT_TRUE(is_parquet("y.parquet"));
  EXPECT_FALSE(is_parquet("y.txt"));
  write("y.txt", "PAR1 is how Parquet begins.");
  EXPECT_FALSE(is_parquet("y.txt"));
  write("y.txt", good);
  EXPECT_TRUE(is_parquet("y.txt"));
  write("cut.parquet", good.substr(0, 99));
  EXPECT_TRUE(is_parquet("cut.parquet"));
  EXPECT_FALSE(is_parquet("absent"));
  EXPECT_FALSE(is_parquet("."));
}

/// The file `name` with some bytes changed, cut out or repeated.
std::string damaged(std::string bytes, std::mt19937_64& random) {
  const auto upto = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  for (auto times = 1 + upto(4); times > 0; --times) {
    const bool in_footer = upto(2) == 0;
    const auto at =
        in_footer ? bytes.size() - 1 - upto(std::min<std::size_t>(bytes.size() - 1, 900)) : upto(bytes.size());
    switch (upto(6)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << upto(8)));
        break;
      case 2:
        bytes[at] = static_cast<char>(upto(2) == 0 ? 0xFF : 0x00);
        break;
      case 3:
        bytes[at] = static_cast<char>(bytes[at] + 1);
        break;
      case 4:
        bytes.insert(at, bytes, upto(bytes.size()), upto(20));
        break;
      default:
        bytes.erase(at, upto(4));
        break;
    }
  }
  return bytes;
}

TEST_F(Parquet, DamagedFilesAreReadOrRefused) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937_64 random(seed);
  int read = 0, refused = 0;
  for (const auto* name : {"alpaca", "nested_snappy", "nested_zstd_v2", "nested_gzip", "nested_plain_v2", "deltas"}) {
    const auto good = read_file(recorded_file(name) + ".parquet");
    for (int round = 0; round < 50; ++round) {
      write("x.parquet", round == 0 ? good : damaged(good, random));
      try {
        (void)lines_of("x.parquet", {}, {1 << 16, 1 << 20, 1 << 20});
        ++read;
      } catch (const ConfigError& error) {
        EXPECT_TRUE(std::string_view(error.what()).starts_with("x.parquet: ")) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GE(read, 6);
  EXPECT_GT(refused, 100);
}

TEST_F(Parquet, AChangedPageIsFoundByItsChecksum) {
  auto bytes = read_file(recorded_file("nested_zstd_v2.parquet"));
  const auto at = bytes.find("\x28\xB5\x2F\xFD");  // the first Zstandard frame
  ASSERT_NE(at, std::string::npos);
  bytes[at + 8] = static_cast<char>(bytes[at + 8] ^ 1);
  write("x.parquet", bytes);
  expect_refused([] { (void)lines_of("x.parquet"); }, {"x.parquet: row group 0, column", "checksum"});
}

TEST_F(Parquet, LimitsAreKept) {
  const auto file = recorded_file("nested_gzip.parquet");
  expect_refused([&] { (void)lines_of(file, {}, {10, 1 << 20, 1 << 20}); }, {"a page has 24 values", "supported 10"});
  expect_refused([&] { (void)lines_of(file, {}, {1 << 20, 50, 1 << 20}); }, {"supported 1048576 and 50"});
  expect_refused([&] { (void)lines_of(file, {}, {1 << 20, 1 << 20, 100}); }, {"row 0", "supported 100 bytes"});
}

TEST(ParquetCodecs, ALieAboutTheSizeIsRefused) {
  // 40 zero bytes.
  const std::vector<unsigned char> gzip = {0x78, 0x9C, 0x63, 0x60, 0x20, 0x0E, 0x00, 0x00, 0x00, 0x28, 0x00, 0x01};
  const std::vector<unsigned char> zstandard = {0x28, 0xB5, 0x2F, 0xFD, 0x20, 0x28, 0x45, 0x00, 0x00,
                                                0x10, 0x00, 0x00, 0x01, 0x00, 0x1F, 0x80, 0x05};
  const std::vector<unsigned char> snappy = {0x28, 0x00, 0x00, 0x9A, 0x01, 0x00};
  std::vector<std::byte> out;
  for (const auto codec : {1, 2, 6}) {
    const auto in = std::as_bytes(std::span(codec == 1 ? snappy : codec == 2 ? gzip : zstandard));
    decompress_parquet(codec, in, 40, out);
    EXPECT_EQ(out, std::vector<std::byte>(40)) << codec;
    for (const std::size_t wrong : {0U, 39U, 41U, 1000000000U})
      expect_refused([&] { decompress_parquet(codec, in, wrong, out); }, {"damaged"});
    expect_refused([&] { decompress_parquet(codec, in.first(in.size() - 2), 40, out); }, {"damaged"});
    expect_refused([&] { decompress_parquet(codec, {}, 40, out); }, {"damaged"});
    EXPECT_LT(out.capacity(), std::size_t{1} << 22U);
  }
}

TEST(ParquetHeaders, DeepAndEndlessOnesAreRefused) {
  const auto skip = [](const std::string& bytes) {
    ThriftReader in(std::as_bytes(std::span(bytes)));
    in.structure([](const ThriftReader::Field&) { return false; });
  };
  EXPECT_NO_THROW(skip(std::string(20, '\x1C') + std::string(21, '\0')));
  expect_refused([&] { skip(std::string(100000, '\x1C')); }, {"more than 32 deep"});
  expect_refused([&] { skip(std::string(100000, '\x19')); }, {"32 deep"});
  expect_refused([&] { skip("\x15" + std::string(20, '\xFF')); }, {"longer than 64 bits"});
  EXPECT_THROW(skip("\x18\x05"
                    "abc"),
               ThriftEnd);
  EXPECT_THROW(skip("\x19\xF5\xFF\xFF\xFF\x0F"), ThriftEnd);
  expect_refused([&] { skip("\x1E"); }, {"unknown Thrift type 14"});
}

TEST_F(Parquet, ToJsonlWritesAllInputsOrNothing) {
  std::filesystem::copy_file(recorded_file("alpaca.parquet"), "a.parquet");
  const auto rows = read_file(recorded_file("alpaca.jsonl"));
  const auto made = to_jsonl({{"a.parquet", "a.parquet"}, {}, "out.jsonl"});
  EXPECT_EQ(made.rows, 6);
  EXPECT_EQ(made.bytes, static_cast<std::int64_t>(2 * rows.size()));
  EXPECT_EQ(read_file("out.jsonl"), rows + rows);
  expect_refused([] { to_jsonl({{"a.parquet"}, {}, "a.parquet"}); }, {"overwrite the input"});
  std::filesystem::create_hard_link("a.parquet", "b.jsonl.unfinished");
  expect_refused([] { to_jsonl({{"a.parquet"}, {}, "b.jsonl"}); }, {"overwrite the input"});
  std::filesystem::remove("b.jsonl.unfinished");
  expect_refused([] { to_jsonl({{"a.parquet"}, {}, "no/such/folder/x"}); }, {"no/such/folder/x"});
  expect_refused([] { to_jsonl({{"a.parquet"}, {}, "."}); }, {"folder"});
  expect_refused([] { to_jsonl({{"out.jsonl"}, {}, "b.jsonl"}); }, {"out.jsonl", "not a Parquet file"});
  std::filesystem::copy_file(recorded_file("types.parquet"), "bad.parquet");
  expect_refused([] { to_jsonl({{"a.parquet", "bad.parquet"}, {"text", "bytes"}, "out.jsonl"}); }, {"a.parquet"});
  expect_refused(
      [] {
        to_jsonl({{"bad.parquet"}, {"text", "bytes"}, "out.jsonl"});
      },
      {"bad.parquet: row group 0, row 0"});
  EXPECT_EQ(read_file("out.jsonl"), rows + rows);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("."), {}), 3);
}

}  // namespace
}  // namespace tessera::parquet
