// Where text comes from: compressed files, patterns, standard input; and input that is broken.

#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "framework/base/files.h"
#include "framework/files/input_stream.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/preprocessing/preprocess.h"
#include "framework/preprocessing/text_chunks.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::preprocessing {
namespace {

void put(const std::string& name, const std::string& bytes) { std::ofstream(name, std::ios::binary) << bytes; }

std::string gzip(const std::string& plain) {
  z_stream state{};
  EXPECT_EQ(::deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&state, plain.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  state.avail_in = static_cast<uInt>(plain.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  return out;
}

std::string zstandard(const std::string& plain) {
  std::string out(::ZSTD_compressBound(plain.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), plain.data(), plain.size(), 3));
  return out;
}

std::string xz(const std::string& plain) {
  std::string out(::lzma_stream_buffer_bound(plain.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(::lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(plain.data()),
                                      plain.size(), reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

class PreprocessInput : public InOwnFolder {
 protected:
  static PreprocessRequest of(std::vector<std::string> inputs) {
    PreprocessRequest request;
    request.inputs = std::move(inputs);
    request.output_prefix = "out";
    request.append_eod = true;
    request.chunk_bytes = 100;
    return request;
  }
  static PreprocessResult run(const PreprocessRequest& request) {
    return preprocess(*chosen(tokenizers::tokenizers(), {{"tokenizer_type", "NullTokenizer"}, {"vocab_size", "500"}}),
                      request);
  }
  static std::string output() { return read_file("out_text_document.bin") + read_file("out_text_document.idx"); }
  static std::string corpus(int documents) {
    std::string lines;
    for (int d = 0; d < documents; ++d) lines += text("{\"text\": \"", d % 500, " ", d % 7, "\"}\n");
    return lines;
  }
  static std::size_t entries() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("."), {}));
  }
};

TEST_F(PreprocessInput, CompressedFilesAreReadWhateverTheirName) {
  const auto lines = corpus(20000);
  put("in.jsonl", lines);
  run(of({"in.jsonl"}));
  const auto expected = output();
  const auto middle = lines.find('\n', lines.size() / 2) + 1;
  const auto first = lines.substr(0, middle), second = lines.substr(middle);
  put("a.jsonl.gz", gzip(first) + gzip(second) + std::string(512, '\0'));
  put("b.jsonl.zst", zstandard(first) + zstandard(second));
  put("c.jsonl.xz", xz(first) + xz(second));
  put("d", gzip(lines));
  for (const auto* name : {"a.jsonl.gz", "b.jsonl.zst", "c.jsonl.xz", "d"}) {
    EXPECT_EQ(run(of({name})).total.documents, 20000) << name;
    EXPECT_TRUE(output() == expected) << name;
  }
}

TEST_F(PreprocessInput, DamagedCompressedFilesAreRefused) {
  std::mt19937 random(7);
  std::string lines;
  while (lines.size() < 400000) lines += text("{\"text\": \"", random() % 500, " ", random() % 500, "\"}\n");
  const std::vector<std::pair<std::string, std::string>> all = {
      {"a.gz", gzip(lines)}, {"b.zst", zstandard(lines)}, {"c.xz", xz(lines)}};
  for (const auto& [name, whole] : all) {
    put(name, whole.substr(0, whole.size() - 20));
    expect_refused([&, file = name] { run(of({file})); }, {name, "cut off"});
    auto damaged = whole;
    for (std::size_t i = 0; i < 16; ++i) damaged[damaged.size() / 2 + i] ^= 0x55;
    put(name, damaged);
    expect_refused([&, file = name] { run(of({file})); }, {name});
    put(name, "{\"text\": \"1\"}\n");
    expect_refused([&, file = name] { run(of({file})); }, {name, "as its name says"});
    std::filesystem::remove(name);
    EXPECT_EQ(entries(), 0U);
  }
}

/// A frame that decompressors skip, with one of its sixteen magic numbers.
std::string skippable(const std::string& content, unsigned number = 0) {
  std::string out = {static_cast<char>(0x50 + number), '\x2A', '\x4D', '\x18'};
  const auto size = static_cast<std::uint32_t>(content.size());
  return out.append(reinterpret_cast<const char*>(&size), sizeof size) + content;
}

/// An xz stream of several blocks, as `xz -T` writes it.
std::string xz_of_blocks(const std::string& plain) {
  lzma_mt options{};
  options.block_size = 4096;
  options.threads = 2;
  options.preset = 1;
  options.check = LZMA_CHECK_CRC32;
  lzma_stream state = LZMA_STREAM_INIT;
  EXPECT_EQ(::lzma_stream_encoder_mt(&state, &options), LZMA_OK);
  std::string out(2 * ::lzma_stream_buffer_bound(plain.size()), '\0');
  state.next_in = reinterpret_cast<const std::uint8_t*>(plain.data());
  state.avail_in = plain.size();
  state.next_out = reinterpret_cast<std::uint8_t*>(out.data());
  state.avail_out = out.size();
  EXPECT_EQ(::lzma_code(&state, LZMA_FINISH), LZMA_STREAM_END);
  out.resize(state.total_out);
  ::lzma_end(&state);
  return out;
}

// What pzstd, zstd --seekable, bgzip, pigz and xz -T write, and what cat makes of such files.
TEST_F(PreprocessInput, MembersAndFramesOfParallelCompressorsAreAllRead) {
  const auto lines = corpus(3000);
  put("in.jsonl", lines);
  run(of({"in.jsonl"}));
  const auto expected = output();
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < lines.size(); at += 7001) parts.push_back(lines.substr(at, 7001));
  const auto joined_of = [&](const auto& compress, const std::string& before, const std::string& between) {
    std::string all;
    for (const auto& part : parts) all += before + compress(part) + between;
    return all;
  };
  const std::string zeros(4, '\0'), number(4, '\1');
  const std::vector<std::pair<std::string, std::string>> files = {
      {"pzstd.zst", joined_of(zstandard, skippable(number), "")},
      {"seekable.zst", joined_of(zstandard, "", "") + skippable(std::string(999, 's'), 14)},
      {"everywhere.zst", skippable("", 15) + skippable("x", 7) + joined_of(zstandard, skippable("12"), skippable("3"))},
      {"empty_frames.zst", zstandard("") + joined_of(zstandard, "", zstandard("")) + zstandard("")},
      {"no_name", joined_of(zstandard, skippable(number), "")},
      {"bgzip.gz", joined_of(gzip, "", "") + gzip("")},
      {"empty_members.gz", gzip("") + joined_of(gzip, "", gzip(""))},
      {"tape.gz", joined_of(gzip, "", "") + std::string(10000, '\0')},
      {"blocks.xz", xz_of_blocks(lines)},
      {"padded.xz", joined_of(xz, "", zeros) + zeros},
      {"empty_streams.xz", xz("") + joined_of(xz, "", "") + xz("")}};
  for (const auto& [name, bytes] : files) {
    put(name, bytes);
    EXPECT_EQ(run(of({name})).total.documents, 3000) << name;
    EXPECT_TRUE(output() == expected) << name;
  }
}

TEST_F(PreprocessInput, OnlySkippableFramesAreAnEmptyInput) {
  put("a.zst", skippable("1234"));
  EXPECT_EQ(run(of({"a.zst"})).total.documents, 0);
}

TEST_F(PreprocessInput, WhatFollowsTheLastMemberIsRefused) {
  const auto line = corpus(1);
  for (const std::string& garbage : {std::string("x"), std::string("garbage behind it"), std::string(100, '\x28')})
    for (const auto& [name, whole] : std::vector<std::pair<std::string, std::string>>{
             {"a.gz", gzip(line)}, {"b.zst", zstandard(line)}, {"c.xz", xz(line)}, {"d.zst", skippable("1")}}) {
      put(name, whole + garbage);
      expect_refused([&, file = name] { run(of({file})); }, {name, "compressed data"});
    }
  put("c.xz", xz(line) + std::string(5, '\0'));  // padding is a multiple of 4 bytes
  expect_refused([] { run(of({"c.xz"})); }, {"c.xz"});
  put("a.zst", skippable("1234").substr(0, 9));
  expect_refused([] { run(of({"a.zst"})); }, {"a.zst", "cut off"});
}

/// preprocess() of `name`, which is cut to `bytes` after its first chunk was read.
void preprocess_truncated(const PreprocessRequest& request, const std::string& name, std::uintmax_t bytes) {
  bool cut = false;
  preprocess(tokenizers::ByteTokenizer({"<unk>", "<s>", "</s>"}, ""), request, [&](const PreprocessProgress& progress) {
    if (progress.bytes > 0 && !std::exchange(cut, true)) std::filesystem::resize_file(name, bytes);
  });
}

// A .txt file is mapped, the other is read: neither may end the process, or make half a corpus of it.
TEST_F(PreprocessInput, AFileThatIsTruncatedWhileItIsReadIsRefused) {
  std::string numbers;
  while (numbers.size() < 4000000) numbers += "1 22 333\n";
  for (const auto bytes : {std::uintmax_t{0}, std::uintmax_t{1000}, std::uintmax_t{3000001}, numbers.size() - 1}) {
    for (const std::string name : {"in.txt", "in.jsonl"}) {
      put(name, name == "in.txt" ? numbers : corpus(200000));
      if (bytes >= std::filesystem::file_size(name)) continue;
      auto request = of({name});
      request.append_eod = false;
      request.chunk_bytes = 1000;
      expect_refused([&] { preprocess_truncated(request, name, bytes); }, {name, "truncated"});
      EXPECT_EQ(entries(), 1U) << name;
      std::filesystem::remove(name);
    }
  }
}

TEST_F(PreprocessInput, ALineOrParagraphWithoutEndIsRefused) {
  put("in.jsonl", "{\"text\": \"1\"}\n{\"text\": \"" + std::string(100000, '1'));
  put("zeros.gz", gzip(std::string(1000000, '\0')));
  put("in.txt", std::string(50000, 'x') + "\n" + std::string(50000, 'y'));
  const auto refused = [](const std::string& name, files::TextFormat format, const std::vector<std::string>& says) {
    ChunkReader reader({{name, format}}, 1000, false, 65536);
    expect_refused(
        [&] {
          for (TextChunk chunk; reader.next(chunk);) EXPECT_LE(chunk.bytes.size(), 200000U);
        },
        says);
  };
  refused("in.jsonl", files::TextFormat::json_lines, {"in.jsonl: the line at byte 14", "more than 65536 bytes"});
  refused("zeros.gz", files::TextFormat::json_lines, {"zeros.gz: the line at byte 0", "more than 65536 bytes"});
  refused("in.txt", files::TextFormat::blank_lines, {"in.txt: the paragraph at byte 0", "more than 65536 bytes"});
  ChunkReader reader({{"in.txt", files::TextFormat::json_lines}}, 1000, false, 65536);
  int chunks = 0;
  for (TextChunk chunk; reader.next(chunk);) ++chunks;
  EXPECT_EQ(chunks, 2);
}

TEST_F(PreprocessInput, PatternsAndSeveralInputsAreReadInOrder) {
  put("part2.jsonl", "{\"text\": \"2\"}");
  put("part1.jsonl", "{\"text\": \"1\"}\n");
  put("last.jsonl", "{\"text\": \"3\"}\n");
  put("all.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n{\"text\": \"3\"}\n");
  run(of({"all.jsonl"}));
  const auto expected = output();
  run(of({"part?.jsonl", "last.jsonl"}));
  EXPECT_TRUE(output() == expected);
  expect_refused([] { run(of({"x*.jsonl"})); }, {"x*.jsonl", "matches no file"});
  expect_refused([] { run(of({"all.jsonl", "absent.jsonl"})); }, {"absent.jsonl"});
}

TEST_F(PreprocessInput, StandardInputIsRead) {
  put("in.jsonl", corpus(500));
  run(of({"in.jsonl"}));
  const auto expected = output();
  put("in.gz", gzip(corpus(500)));
  for (const auto* name : {"in.jsonl", "in.gz"}) {
    const int before = ::dup(STDIN_FILENO), file = ::open(name, O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    EXPECT_EQ(run(of({"-"})).total.documents, 500);
    ::dup2(before, STDIN_FILENO);
    ::close(before);
    ::close(file);
    EXPECT_TRUE(output() == expected);
  }
}

// As `--input <(command)` of a shell and mkfifo give it: what opens it twice loses bytes, or waits for ever.
TEST_F(PreprocessInput, ANamedPipeIsReadOnceAndWhole) {
  put("in.txt", "1 2 3 4 5 6 7 8 9");
  put("in.jsonl", corpus(500));
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  for (const auto* name : {"in.txt", "in.jsonl"}) {
    auto request = of({name});
    request.format = files::format_by_name(name);
    const auto expected = run(request).total.tokens;
    std::jthread writer([content = read_file(name)] { put("pipe", content); });
    request.inputs = {"pipe"};
    EXPECT_EQ(run(request).total.tokens, expected) << name;
  }
  auto request = of({"pipe"});
  request.partitions = 2;
  request.keep_sequential_samples = true;
  expect_refused([&] { run(request); }, {"counts the lines first", "'pipe'", "only once", "give a file"});
  request.inputs = {"-"};
  expect_refused([&] { run(request); }, {"counts the lines first", "standard input", "only once"});
  expect_refused([] { files::TextFile("pipe", files::TextFormat::whole_file); }, {"'pipe'", "give a file"});
  std::filesystem::create_directory("folder");
  expect_refused([] { run(of({"folder"})); }, {"folder", "give a file"});
}

TEST_F(PreprocessInput, BadLinesAreSkippedOnRequestAndTold) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += i % 10 == 3 ? "{\"text\": 5}\n" : "{\"text\": \"5\"}\n";
  lines += std::string("{\"text\": \"a\0\"}\n", 15) + "{\"text\": \"\xC3(\"}\n\n{\"text\": \"7 x\"}\n{\"text\": \"9\"}";
  put("in.jsonl", lines);
  auto request = of({"in.jsonl"});
  expect_refused([&] { run(request); }, {"in.jsonl:4:", "'text' is number"});
  EXPECT_EQ(entries(), 1U);
  request.skip_bad = true;
  request.workers = 3;
  const auto result = run(request);
  EXPECT_EQ(result.total.documents, 91);
  EXPECT_EQ(result.total.skipped, 14);
  ASSERT_EQ(result.skipped.size(), 5U);
  EXPECT_EQ(result.skipped[1].substr(0, 13), "in.jsonl:14: ");
  std::string good;
  for (int i = 0; i < 90; ++i) good += "{\"text\": \"5\"}\n";
  put("good.jsonl", good + "{\"text\": \"9\"}");
  const auto skipped = output();
  run(of({"good.jsonl"}));
  EXPECT_EQ(output(), skipped);
}

TEST_F(PreprocessInput, AVeryLongLineIsADocument) {
  std::string numbers = "1";
  while (numbers.size() < 9000000) numbers += " 1";
  put("in.jsonl", "{\"text\": \"2\"}\n{\"text\": \"" + numbers + "\"}\n{\"text\": \"3\"}\n");
  EXPECT_EQ(run(of({"in.jsonl"})).total.tokens, static_cast<std::int64_t>(numbers.size() / 2 + 1 + 2 + 3));
  put("in.jsonl", "{\"text\": \"" + numbers);
  expect_refused([] { run(of({"in.jsonl"})); }, {"in.jsonl:1:", "closing quote"});
}

TEST_F(PreprocessInput, SentencesAreTakenAsListsOnly) {
  put("in.jsonl", "{\"text\": [\"1\", \"2 3\"]}\n");
  auto request = of({"in.jsonl"});
  request.split_sentences = true;
  EXPECT_EQ(run(request).files[0].prefix, "out_text_sentence");
  EXPECT_EQ(indexed::IndexedDataset("out_text_sentence").sequences(), 2);
  put("in.jsonl", "{\"text\": \"1 2\"}\n");
  expect_refused([&] { run(request); }, {"in.jsonl:1:", "--split-sentences", "not available"});
  put("in_ss.jsonl", "{\"text\": [\"4\"]}\n");  // as Megatron-LM's tool leaves it
  EXPECT_NE(run(request).notes.at(0).find("in_ss.jsonl"), std::string::npos);
  EXPECT_EQ(indexed::IndexedDataset("out_text_sentence").tokens(), 2);
  put("in.txt", "1 2");
  request.inputs = {"in.txt"};
  expect_refused([&] { run(request); }, {"--split-sentences", "plain text"});
}

TEST_F(PreprocessInput, ExistingPartitionsAreRead) {
  put("in.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n");
  auto request = of({"in.jsonl"});
  request.partitions = 2;
  put("in_0.jsonl", "{\"text\": \"7\"}\n");
  EXPECT_TRUE(run(request).notes.empty());
  EXPECT_EQ(indexed::IndexedDataset("out_text_document").tokens(), 4);
  put("in_1.jsonl", "{\"text\": \"8\"}\n{\"text\": \"9\"}\n");
  EXPECT_EQ(run(request).notes.size(), 1U);
  EXPECT_EQ(indexed::IndexedDataset("out_text_document").tokens(), 6);
  EXPECT_EQ(indexed::IndexedDataset("out_1_text_document").tokens(), 4);
}

TEST_F(PreprocessInput, AKeyThatCannotBePartOfAFileNameIsRefused) {
  write("in.jsonl", "{\"../a\": \"1 2\", \"b\": \"3\"}\n");
  auto request = of({"in.jsonl"});
  request.json_keys = {"b", "../a"};
  expect_refused([&] { run(request); }, {"--json-keys '../a'", "no slash"});
  EXPECT_FALSE(std::filesystem::exists("out_b_document.bin"));
}

}  // namespace
}  // namespace tessera::preprocessing
