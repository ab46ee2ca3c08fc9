#include "framework/indexed/token_checksums.h"

#include <random>

#include "framework/data/bad_sample.h"
#include "framework/indexed/indexed_dataset.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::indexed {
namespace {

constexpr std::int64_t tokens_of_each = 3000;  // several sequences share a chunk, and some lie in two

struct CheckedTokens : InOwnFolder {
  std::mt19937 random{seed};
  static const unsigned seed;

  void write_tokens(std::int64_t sequences) {
    IndexedDatasetBuilder builder("x", TokenType::uint16);
    for (std::int64_t s = 0; s < sequences; ++s) {
      std::vector<std::int32_t> tokens(tokens_of_each);
      for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 60000);
      builder.add_sequence(tokens);
      builder.end_document();
    }
    builder.finish();
  }
  void flip_bit(const std::string& name, std::size_t bit) {
    auto content = read_file(name);
    content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
    write(name, content);
  }
  std::size_t random_bit(const std::string& name) { return random() % (8 * read_file(name).size()); }
};
const unsigned CheckedTokens::seed = std::random_device()();

std::vector<std::int32_t> read_all(const IndexedDataset& data, std::int64_t sequence) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.length(sequence)));
  data.read(sequence, 0, tokens);
  return tokens;
}

TEST_F(CheckedTokens, EveryBitThatFlipsIsFoundByTheSequencesOfItsChunkAndByNoOther) {
  write_tokens(60);
  TokenChecksums::write("x");
  verify_checksums("x");
  constexpr auto bytes_of_each = tokens_of_each * 2;
  for (int round = 0; round < 20; ++round) {
    const auto bit = random_bit("x.bin");
    flip_bit("x.bin", bit);
    expect_refused([] { verify_checksums("x"); }, {"x.bin: bytes ", "have the checksum"});
    const auto chunk = static_cast<std::int64_t>(bit / 8 / TokenChecksums::chunk_bytes);
    for (const bool mapped : {true, false}) {
      const IndexedDataset data("x", mapped);
      for (std::int64_t s = 0; s < data.sequences(); ++s) {
        const auto of = [](std::int64_t byte) { return byte / static_cast<std::int64_t>(TokenChecksums::chunk_bytes); };
        const bool touched = of(s * bytes_of_each) <= chunk && chunk <= of((s + 1) * bytes_of_each - 1);
        if (touched) {
          EXPECT_THROW(read_all(data, s), data::BadSampleError)
              << "sequence " << s << ", bit " << bit << ", seed " << seed;
        } else {
          EXPECT_NO_THROW(read_all(data, s)) << "sequence " << s << ", bit " << bit << ", seed " << seed;
        }
      }
    }
    flip_bit("x.bin", bit);
  }
}

TEST_F(CheckedTokens, EveryBitThatFlipsInTheIndexOrTheChecksumsIsFoundAtOnce) {
  write_tokens(20);
  TokenChecksums::write("x");
  for (int round = 0; round < 100; ++round)
    for (const auto* name : {"x.idx", "x.crc"}) {
      const auto bit = random_bit(name);
      flip_bit(name, bit);
      EXPECT_THROW(IndexedDataset("x"), ConfigError) << name << " bit " << bit << ", seed " << seed;
      EXPECT_THROW(verify_checksums("x"), ConfigError) << name << " bit " << bit << ", seed " << seed;
      flip_bit(name, bit);
    }
  EXPECT_NO_THROW(IndexedDataset("x"));
}

TEST_F(CheckedTokens, ChecksumsOfOtherFilesAreRefusedAndNewFilesHaveNone) {
  write_tokens(3);
  expect_refused([] { verify_checksums("x"); }, {"x.crc: there is no such file", "tessera data checksum"});
  TokenChecksums::write("x");
  const auto old = read_file("x.crc");
  write_tokens(4);
  EXPECT_FALSE(std::filesystem::exists("x.crc"));
  write("x.crc", old);
  expect_refused([] { IndexedDataset("x"); }, {"x.bin: has 24000 bytes, but x.crc has checksums of 18000"});
  expect_refused([] { TokenChecksums::write("gone"); }, {"gone.bin"});
}

TEST_F(CheckedTokens, WhatIsTruncatedAfterItWasOpenedIsAnErrorOfTheSequencesThatAreGone) {
  for (const bool checked : {false, true})
    for (const bool mapped : {true, false}) {
      write_tokens(60);
      if (checked) TokenChecksums::write("x");
      const IndexedDataset data("x", mapped);
      const auto kept = std::uint64_t{3} << 16U;  // whole pages and chunks
      std::filesystem::resize_file("x.bin", kept);
      for (std::int64_t s = 0; s < data.sequences(); ++s)
        if (static_cast<std::uint64_t>(s + 1) * tokens_of_each * 2 <= kept) {
          EXPECT_NO_THROW(read_all(data, s)) << s;
        } else {
          EXPECT_THROW(read_all(data, s), IoError) << s;
        }
    }
}

}  // namespace
}  // namespace tessera::indexed
