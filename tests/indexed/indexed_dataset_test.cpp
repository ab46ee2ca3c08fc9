#include "framework/indexed/indexed_dataset.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include "framework/base/files.h"
#include "framework/files/unfinished_file.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::indexed {
namespace {

using Ids = std::vector<std::int32_t>;
using IndexedFiles = InOwnFolder;

// Two documents with a sequence each, an empty one, one of two sequences.
void write_some(const std::string& prefix, TokenType type = TokenType::uint16) {
  IndexedDatasetBuilder builder(prefix, type);
  builder.add_sequence(Ids{1, 2, 3});
  builder.end_document();
  builder.add_sequence(Ids{40000});
  builder.end_document();
  builder.end_document();
  builder.add_sequence(Ids{7, 8});
  builder.add_sequence(Ids{9});
  builder.end_document();
  builder.finish();
}

TEST_F(IndexedFiles, ComeBackAsTheyWereWritten) {
  for (const auto type : {TokenType::uint16, TokenType::int32}) {
    write_some("x", type);
    const IndexedDataset data("x");
    EXPECT_EQ(data.type(), type);
    EXPECT_EQ(data.documents(), 4);
    EXPECT_EQ(data.sequences(), 4);
    EXPECT_EQ(data.tokens(), 7);
    EXPECT_EQ(data.first_sequence(2), 2);
    EXPECT_EQ(data.first_sequence(3), 2);
    EXPECT_EQ(data.first_sequence(4), 4);
    Ids two(2);
    data.read(0, 1, two);
    EXPECT_EQ(two, (Ids{2, 3}));
    Ids one(1);
    data.read(1, 0, one);
    EXPECT_EQ(one, Ids{40000});
    EXPECT_EQ(data.place(3, 0), "x.bin: document 3, token 2 (both from 0)");
    EXPECT_EQ(data.place(1, 0), "x.bin: document 1, token 0 (both from 0)");
  }
}

TEST_F(IndexedFiles, EveryTypeOfTokenIsRead) {
  write_some("x", TokenType::int32);
  const auto index = read_file("x.idx");
  const auto tokens = std::string("\x05\x00\x00\x00\x00\x00\x00\x00\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 16);
  const std::vector<std::pair<int, Ids>> expected = {{1, {5, 0, 0}},  {2, {5, 0, 0}}, {3, {5, 0, 0}},
                                                     {4, {5, 0, -1}}, {5, {5}},       {8, {5, 0, 0}}};
  for (const auto& [code, ids] : expected) {
    auto changed = index;
    changed[17] = static_cast<char>(code);
    for (std::size_t i = 50; i < 82; ++i) changed[i] = 0;  // all pointers to the beginning
    write("y.idx", changed);
    write("y.bin", tokens + std::string(40, '\0'));
    Ids read(ids.size());
    IndexedDataset("y").read(0, 0, read);
    EXPECT_EQ(read, ids) << "type " << code;
  }
}

TEST_F(IndexedFiles, AreMergedDocumentByDocument) {
  write_some("x");
  {
    IndexedDatasetBuilder both("z", TokenType::uint16);
    both.add(IndexedDataset("x"));
    both.add(IndexedDataset("x"));
    both.finish();
  }
  const IndexedDataset data("z");
  EXPECT_EQ(data.documents(), 8);
  EXPECT_EQ(data.first_sequence(7), 6);
  EXPECT_EQ(read_file("z.bin"), read_file("x.bin") + read_file("x.bin"));
  expect_refused([] { IndexedDatasetBuilder("w", TokenType::int32).add(IndexedDataset("x")); }, {"uint16", "int32"});
  EXPECT_FALSE(std::filesystem::exists("w.bin"));
}

TEST_F(IndexedFiles, DamageIsNamed) {
  write_some("x");
  const auto index = read_file("x.idx"), data = read_file("x.bin");
  const auto open = [&](const std::string& idx, const std::string& bin) {
    return [=] {
      write("y.idx", idx);
      write("y.bin", bin);
      (void)IndexedDataset("y");
    };
  };
  const auto changed = [&](std::size_t at, char byte) {
    auto copy = index;
    copy[at] = byte;
    return copy;
  };
  EXPECT_NO_THROW(open(index, data)());
  expect_refused([] { (void)IndexedDataset("absent"); }, {"absent.idx", "prefix"});
  expect_refused(open(index, data.substr(0, 13)), {"y.bin", "13 bytes", "7 tokens", "truncated"});
  expect_refused(open(changed(0, 'X'), data), {"y.idx", "MMIDIDX"});
  expect_refused(open("", data), {"y.idx", "MMIDIDX"});
  expect_refused(open(changed(9, 2), data), {"y.idx", "version 2"});
  expect_refused(open(changed(17, 6), data), {"y.idx", "type code 6"});
  expect_refused(open(changed(17, 77), data), {"y.idx", "type code 77"});
  expect_refused(open(index.substr(0, index.size() - 1), data), {"y.idx", "cut off"});
  expect_refused(open(changed(25, 0x7F), data), {"y.idx", "cut off"});
  expect_refused(open(changed(index.size() - 8, 3), data), {"y.idx", "damaged"});
  expect_refused(open(changed(34, 100), data), {"y.bin", "14 bytes", "104 tokens"});
  expect_refused(open(index + "abc", data), {"y.idx", "3 bytes follow"});
  auto negative = index;
  negative.replace(index.size() - 16, 8, std::string(8, '\xFF'));
  expect_refused(open(negative, data), {"y.idx", "document bound 3 is -1", "2 to 4"});
}

TEST_F(IndexedFiles, ATokenThatIsNoIdIsNamedWithItsValue) {
  write_some("x", TokenType::int32);
  auto index = read_file("x.idx");
  index[17] = static_cast<char>(TokenType::int64);
  for (std::size_t i = 0; i < 4; ++i) index[50 + 8 * i] = static_cast<char>(8 * i);
  write("y.idx", index);
  write("y.bin", std::string(24, '\0') + std::string("\0\0\0\0\0\1\0\0", 8) + std::string(24, '\0'));
  const IndexedDataset data("y");
  Ids one(1);
  data.read(0, 2, one);
  EXPECT_EQ(one, Ids{0});
  expect_refused([&] { data.read(3, 0, one); }, {"y.bin: document 3, token 2", "1099511627776", "2^31"});
  expect_refused([&] { IndexedDatasetBuilder("w", data.type()).add(data); }, {"w", "int64"});
}

/// Everything that can be asked of a dataset.
void read_all(const IndexedDataset& data) {
  std::int64_t tokens = 0;
  for (std::int64_t d = 0; d < data.documents(); ++d)
    for (auto s = data.first_sequence(d); s < data.first_sequence(d + 1); ++s) {
      Ids ids(static_cast<std::size_t>(data.length(s)));
      data.read(s, 0, ids);
      tokens += data.length(s);
    }
  EXPECT_EQ(tokens, data.tokens());
  for (std::int64_t s = 0; s < data.sequences(); ++s) (void)(data.place(s, 0) + std::to_string(data.mode(s)));
}

TEST_F(IndexedFiles, AChangedIndexIsRefusedOrRead) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937_64 random(seed);
  const auto upto = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  write_some("x");
  const auto index = read_file("x.idx");
  write("y.bin", read_file("x.bin"));
  const std::vector<std::pair<std::size_t, std::size_t>> fields = {
      // first byte, bytes
      {9, 8},  {17, 1}, {18, 8}, {26, 8}, {34, 4}, {38, 4}, {42, 4},  {46, 4}, {50, 8},
      {58, 8}, {66, 8}, {74, 8}, {82, 8}, {90, 8}, {98, 8}, {106, 8}, {114, 8}};
  const std::vector<std::int64_t> values = {0,
                                            1,
                                            -1,
                                            2,
                                            3,
                                            7,
                                            1 << 15,
                                            INT32_MAX,
                                            INT32_MIN,
                                            1LL << 40,
                                            INT64_MAX,
                                            INT64_MIN,
                                            8,
                                            INT64_MAX / 2,
                                            INT64_MAX / 12,
                                            INT64_MAX / 8};
  std::size_t read = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    auto changed = index;
    for (std::size_t times = 1 + upto(3); times > 0; --times) {
      const auto [at, size] = fields[upto(fields.size())];
      const auto value = values[upto(values.size())];
      std::memcpy(changed.data() + at, &value, size);
    }
    if (upto(8) == 0) changed.resize(upto(changed.size()));
    write("y.idx", changed);
    try {
      read_all(IndexedDataset("y"));
      ++read;
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

TEST_F(IndexedFiles, ABuilderThatDiesLeavesTheOldFiles) {
  write_some("x");
  const auto before = read_file("x.bin");
  {
    IndexedDatasetBuilder builder("x", TokenType::uint16);
    builder.add_sequence(Ids(3000000, 5));
  }
  EXPECT_EQ(read_file("x.bin"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("."), {}), 2);
  expect_refused([] { IndexedDatasetBuilder("no/such/folder/x", TokenType::uint16); }, {"no/such/folder/x.bin"});
}

TEST_F(IndexedFiles, PlainReadsGiveTheSameTokensForEveryType) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (const std::uint8_t code : {1, 2, 3, 4, 5, 8}) {
    const auto item = size_of(static_cast<TokenType>(code));
    const std::vector<std::int32_t> lengths = {3, 1500, 0, 700};
    std::string data, index("MMIDIDX\0\0", 9);
    const auto append = [&](const auto& number) {
      index.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    append(std::uint64_t{1});
    append(code);
    append(static_cast<std::uint64_t>(lengths.size()));
    append(std::uint64_t{2});
    for (const auto length : lengths) append(length);
    for (std::int64_t at = 0; const auto length : lengths) {
      append(at);
      at += length * static_cast<std::int64_t>(item);
    }
    append(std::int64_t{0});
    append(static_cast<std::int64_t>(lengths.size()));
    for (int i = 0; i < 2203; ++i) {
      const std::int64_t token = random() % 100;
      data.append(reinterpret_cast<const char*>(&token), item);
    }
    std::ofstream("t.bin", std::ios::binary) << data;
    std::ofstream("t.idx", std::ios::binary) << index;
    const IndexedDataset mapped("t"), plain("t", false);
    for (std::int64_t s = 0; s < 4; ++s)
      for (int round = 0; round < 20; ++round) {
        const auto length = lengths[static_cast<std::size_t>(s)];
        const auto first = static_cast<std::int32_t>(random() % static_cast<unsigned>(length + 1));
        Ids one(random() % static_cast<unsigned>(length - first + 1)), other(one.size());
        mapped.read(s, first, one);
        plain.read(s, first, other);
        ASSERT_EQ(one, other) << "type " << int{code} << " seed " << seed;
      }
  }
}

TEST_F(IndexedFiles,
       MayHoldMoreThanFourGigabytesAndTwoToTheThirtyOneTokens) {  // a file that is a hole, but for some tokens
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::vector<std::int64_t> lengths = {most, most, 1000};
  std::string index("MMIDIDX\0\0", 9);
  const auto append = [&](const auto& number) { index.append(reinterpret_cast<const char*>(&number), sizeof number); };
  append(std::uint64_t{1});
  append(std::uint8_t{8});
  append(std::uint64_t{3});
  append(std::uint64_t{4});
  for (const auto length : lengths) append(static_cast<std::int32_t>(length));
  for (std::int64_t s = 0; s < 3; ++s) append(s * most * 2);
  for (std::int64_t d = 0; d < 4; ++d) append(d);
  std::ofstream("t.idx", std::ios::binary) << index;
  {
    std::ofstream data("t.bin", std::ios::binary);
    const std::uint16_t one = 11, two = 22;
    data.seekp(2 * (2 * most - 1));  // the last token of the second sequence, and the first of the third
    data.write(reinterpret_cast<const char*>(&one), 2).write(reinterpret_cast<const char*>(&two), 2);
    data.seekp(2 * (2 * most + 999));
    data.write(reinterpret_cast<const char*>(&two), 2);
  }
  for (const bool map : {true, false}) {
    const IndexedDataset data("t", map);
    EXPECT_EQ(data.tokens(), 2 * most + 1000);
    Ids token(1);
    data.read(1, most - 1, token);
    EXPECT_EQ(token, Ids{11});
    data.read(2, 0, token);
    EXPECT_EQ(token, Ids{22});
    data.read(2, 999, token);
    EXPECT_EQ(token, Ids{22});
  }
}

// As on a file system without locks: the data of one is lost, so it may not report success.
TEST_F(IndexedFiles, ABuilderWhoseFilesAnotherReplacedSaysSo) {
  for (const auto* replaced : {"x.bin.unfinished", "x.idx.unfinished"}) {
    auto builder = std::make_unique<IndexedDatasetBuilder>("x", TokenType::uint16);
    builder->end_document();
    std::filesystem::remove(replaced);
    EXPECT_THROW(builder->require_own_files(), IoError) << replaced;
    write(replaced, "of the other");
    EXPECT_THROW(builder->finish(), IoError) << replaced;
    builder.reset();
    EXPECT_EQ(read_file(replaced), "of the other");
    EXPECT_FALSE(std::filesystem::exists("x.bin"));
  }
}

TEST_F(IndexedFiles, AFileThatAnotherIsWritingIsRefused) {
  files::UnfinishedFile first("x");
  expect_refused([] { files::UnfinishedFile("x"); }, {"x.unfinished", "process", "give another output"});
  first.write("1");
  first.finish();
  files::UnfinishedFile("x").write("2");
  EXPECT_EQ(read_file("x"), "1");
}

}  // namespace
}  // namespace tessera::indexed
