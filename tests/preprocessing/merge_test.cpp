#include "framework/preprocessing/merge.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "framework/base/files.h"
#include "framework/indexed/dataset_summary.h"
#include "framework/indexed/prefixes.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::preprocessing {
namespace {

using Ids = std::vector<std::int32_t>;
using Merging = InOwnFolder;

/// Documents of sequences; each token counts from `first` on.
using Documents = std::vector<std::vector<std::int32_t>>;
void write_dataset(const std::string& prefix, const Documents& lengths, std::int32_t first = 0) {
  indexed::IndexedDatasetBuilder builder(prefix, indexed::TokenType::uint16);
  for (const auto& document : lengths) {
    for (const auto length : document) {
      Ids ids;
      while (static_cast<std::int32_t>(ids.size()) < length) ids.push_back(first++);
      builder.add_sequence(ids);
    }
    builder.end_document();
  }
  builder.finish();
}

void append(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::app) << bytes;
}

TEST_F(Merging, IsTheDatasetOfAllDocuments) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Documents all;
    MergeRequest request{{}, "out", false};
    std::int32_t first = 0;
    for (std::uint64_t part = 0; part < 1 + random() % 4; ++part) {
      Documents lengths(random() % 5);
      std::int32_t tokens = 0;
      for (auto& document : lengths) {
        document.resize(random() % 4);
        for (auto& length : document) tokens += length = static_cast<std::int32_t>(random() % 6);
      }
      request.prefixes.push_back(text("part", part));
      write_dataset(request.prefixes.back(), lengths, first);
      first += tokens;
      all.insert(all.end(), lengths.begin(), lengths.end());
    }
    const auto made = merge_datasets(request);
    write_dataset("expected", all);
    EXPECT_EQ(read_file("out.bin"), read_file("expected.bin"));
    EXPECT_EQ(read_file("out.idx"), read_file("expected.idx"));
    EXPECT_EQ(made.tokens, first);
    EXPECT_EQ(made.documents, static_cast<std::int64_t>(all.size()));
    EXPECT_FALSE(std::filesystem::exists("out.bin.unfinished"));
  }
}

// What --verify, and every run that reads the tokens, refuses.
TEST_F(Merging, DamageThatTheChecksumsKnowIsNotCopied) {
  write_dataset("a", {{70000}});
  write_dataset("b", {{7}, {70000}});
  for (const auto* prefix : {"a", "b"}) indexed::TokenChecksums::write(prefix);
  merge_datasets({{"a", "b"}, "good", false});
  EXPECT_FALSE(std::filesystem::exists("good.crc"));
  auto bytes = read_file("b.bin");
  bytes[140000] ^= 1;
  write("b.bin", bytes);
  expect_refused([] { merge_datasets({{"a", "b"}, "out", false}); }, {"b.bin: bytes 131072 to 140014", "checksum"});
  EXPECT_FALSE(std::filesystem::exists("out.bin") || std::filesystem::exists("out.bin.unfinished"));
  expect_refused([] { indexed::check_tokens(indexed::IndexedDataset("b"), 100000); },
                 {"b.bin: bytes 131072", "checksum"});
}

TEST_F(Merging, KeepsModes) {
  write_dataset("a", {{2, 1}, {}});
  write_dataset("b", {{3}});
  write_dataset("nothing", {{}});
  write_dataset("plain", {{1}});
  append("a.idx", std::string("\x01\x00", 2));
  append("b.idx", "\xFF");
  const indexed::IndexedDataset a("a");
  EXPECT_TRUE(a.has_modes());
  EXPECT_EQ(a.mode(0), 1);
  const auto made = merge_datasets({{"a", "nothing", "b"}, "out", true});
  EXPECT_TRUE(made.modes);
  const indexed::IndexedDataset out("out");
  ASSERT_TRUE(out.has_modes());
  EXPECT_EQ(out.mode(0), 1);
  EXPECT_EQ(out.mode(1), 0);
  EXPECT_EQ(out.mode(2), -1);
  expect_refused(
      [] {
        merge_datasets({{"a", "plain"}, "x", false});
      },
      {"a.idx has sequence modes", "plain.idx has none"});
  expect_refused([] { merge_datasets({{"plain"}, "x", true}); }, {"plain.idx", "--multimodal"});
  EXPECT_FALSE(std::filesystem::exists("x.bin"));
}

TEST_F(Merging, CopiesTokensOfAnyType) {
  write_dataset("a", {{4}, {4}});
  auto index = read_file("a.idx");
  index[17] = static_cast<char>(indexed::TokenType::int64);
  for (const std::size_t at : {34U, 38U}) index[at] = 1;
  index[50] = 8;  // the second sequence
  write("a.idx", index);
  const auto data = std::string("\x01\x00\x00\x00\x00\x00\x00\x70\x02\x00\x00\x00\x00\x00\x00\x00", 16);
  write("a.bin", data);
  EXPECT_EQ(merge_datasets({{"a", "a"}, "out", false}).type, indexed::TokenType::int64);
  EXPECT_EQ(read_file("out.bin"), data + data);
  write_dataset("b", {{1}});
  expect_refused([] { merge_datasets({{"a", "b"}, "x", false}); }, {"b: holds uint16", "a holds int64"});
  const auto check = indexed::check_tokens(indexed::IndexedDataset("out"), std::nullopt);
  EXPECT_EQ(check.tokens, 4);
  EXPECT_EQ(check.outside, 2);
  EXPECT_EQ(check.greatest, 2);
  EXPECT_NE(check.first_outside.find("out.bin: document 0, token 0"), std::string::npos) << check.first_outside;
}

TEST_F(Merging, FoldersAreReadInMegatronsOrder) {
  std::filesystem::create_directories("all/folder.bin");
  for (const auto* name : {"b", "a_text_document", "a", "B", "a.1", "\xC3\xA9"})
    write_dataset(text("all/", name), {{1}});
  write("all/readme.txt", "");
  std::vector<std::string> ignored;
  EXPECT_EQ(indexed::prefixes_in("all", ignored),
            (std::vector<std::string>{"all/B", "all/a", "all/a.1", "all/a_text_document", "all/b", "all/\xC3\xA9"}));
  EXPECT_EQ(ignored, std::vector<std::string>{"readme.txt"});
  std::filesystem::remove("all/a.bin");
  expect_refused([&] { indexed::prefixes_in("all", ignored); },
                 {"all/a: cannot be merged", "all/a.idx without all/a.bin"});
  std::filesystem::create_directory("empty");
  expect_refused([&] { indexed::prefixes_in("empty", ignored); }, {"'empty' has no .bin and .idx"});
  expect_refused([&] { indexed::prefixes_in("absent", ignored); }, {"no folder 'absent'"});
}

TEST_F(Merging, AMissingDatasetSaysWhatIsThere) {
  std::filesystem::create_directory("folder");
  write_dataset("corpus_text_document", {{1}});
  write_dataset("other", {{1}});
  write_dataset("folder/inside", {{1}});
  write_dataset("half", {{1}});
  std::filesystem::remove("half.idx");
  const auto said = [](const std::string& prefix, const std::vector<std::string>& parts) {
    expect_refused([&] { (void)indexed::IndexedDataset(prefix); }, parts);
  };
  said("corpus", {"corpus.idx", "there are the prefixes corpus_text_document, half, other"});
  said("other_text", {"there are the prefixes other, corpus_text_document, half"});
  said("other.bin", {"did you mean 'other'?"});
  said("half", {"there is half.bin without half.idx"});
  said("folder", {"'folder' is a folder with the prefixes folder/inside"});
  said("folder/x", {"there are the prefixes folder/inside"});
  said("absent/x", {"there is no folder 'absent'"});
  write("half.idx.unfinished", "");
  said("half", {"unfinished files of a run"});
}

TEST_F(Merging, ASummaryCountsLengths) {
  write_dataset("a", {{1, 2, 3}, {}, {4, 7, 0}, {100}});
  const auto summary = indexed::summarize(indexed::IndexedDataset("a"));
  EXPECT_EQ(summary.documents, 4);
  EXPECT_EQ(summary.empty_documents, 1);
  EXPECT_EQ(summary.shortest_document, 0);
  EXPECT_EQ(summary.longest_document, 100);
  EXPECT_EQ(summary.shortest_sequence, 0);
  EXPECT_EQ(summary.longest_sequence, 100);
  EXPECT_NEAR(summary.mean_sequence, 117.0 / 7, 1e-12);
  std::string histogram;
  for (const auto& bucket : summary.histogram)
    histogram += text(bucket.from, "-", bucket.to, ":", bucket.sequences, "/", bucket.tokens, " ");
  EXPECT_EQ(histogram, "0-0:1/0 1-1:1/1 2-3:2/5 4-7:2/11 8-15:0/0 16-31:0/0 32-63:0/0 64-127:1/100 ");
  write_dataset("none", {});
  EXPECT_TRUE(indexed::summarize(indexed::IndexedDataset("none")).histogram.empty());
}

TEST_F(Merging, AllTokensAreChecked) {
  write_dataset("a", {{3}, {2}}, 10);
  auto check = indexed::check_tokens(indexed::IndexedDataset("a"), 15);
  EXPECT_EQ(check.tokens, 5);
  EXPECT_EQ(check.least, 10);
  EXPECT_EQ(check.greatest, 14);
  EXPECT_EQ(check.outside, 0);
  EXPECT_EQ(check.unused_bytes, 0);
  EXPECT_EQ(check.out_of_order, 0);
  check = indexed::check_tokens(indexed::IndexedDataset("a"), 13);
  EXPECT_EQ(check.outside, 2);
  EXPECT_EQ(check.first_outside, "a.bin: document 1, token 0 (both from 0) is 13");
  append("a.bin", "abc");
  auto index = read_file("a.idx");
  index[50] = 4;  // the second sequence overlaps the first by one token
  write("a.idx", index);
  check = indexed::check_tokens(indexed::IndexedDataset("a"), std::nullopt);
  EXPECT_EQ(check.out_of_order, 1);
  EXPECT_EQ(check.unused_bytes, 5);
}

}  // namespace
}  // namespace tessera::preprocessing
