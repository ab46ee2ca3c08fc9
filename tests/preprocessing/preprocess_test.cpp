#include "framework/preprocessing/preprocess.h"

#include <fstream>
#include <iterator>

#include "framework/base/files.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/preprocessing/text_chunks.h"
#include "framework/unicode/unicode_classes.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::preprocessing {
namespace {

using Ids = std::vector<std::int32_t>;

class Preprocess : public InOwnFolder {
 protected:
  static std::vector<TokenFiles> run(const PreprocessRequest& request) { return result(request).files; }
  static PreprocessResult result(const PreprocessRequest& request) {
    return preprocess(*chosen(tokenizers::tokenizers(), {{"tokenizer_type", "NullTokenizer"}, {"vocab_size", "500"}}),
                      request);
  }
  static PreprocessRequest of(const std::string& input, std::optional<files::TextFormat> format = {}) {
    PreprocessRequest request;
    request.inputs = {input};
    request.format = format;
    request.output_prefix = "out";
    request.append_eod = true;
    return request;
  }
  static std::vector<Ids> documents(const std::string& prefix) {
    const indexed::IndexedDataset data(prefix);
    std::vector<Ids> all;
    for (std::int64_t d = 0; d < data.documents(); ++d) {
      all.emplace_back();
      for (auto s = data.first_sequence(d); s < data.first_sequence(d + 1); ++s) {
        Ids ids(static_cast<std::size_t>(data.length(s)));
        data.read(s, 0, ids);
        all.back().insert(all.back().end(), ids.begin(), ids.end());
      }
    }
    return all;
  }
};

TEST_F(Preprocess, ATokenizerWithoutAnEndOfDocumentIsRefusedOnlyIfOneIsToBeAppended) {
  make_folder("tokenizer");
  write("tokenizer/tokenizer.json", R"({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}})");
  const auto tokenizer =
      chosen(tokenizers::tokenizers(), {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "tokenizer"}});
  write("in.jsonl", "{\"text\": \"b a c\"}\n");
  auto request = of("in.jsonl");
  EXPECT_THROW(preprocess(*tokenizer, request), ConfigError);
  request.append_eod = false;
  preprocess(*tokenizer, request);
  EXPECT_EQ(documents("out_text_document"), (std::vector<Ids>{{1, 0, 2}}));
}

// 70000 in 16 bits is 4464, which is another token, or none.
TEST_F(Preprocess, AnIdThatTheTypeOfTheFileCannotHoldIsRefused) {
  make_folder("tokenizer");
  write("tokenizer/tokenizer.json", R"({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 70000, "c": 65535, "?": 2}, "unk_token": "?"}})");
  const auto tokenizer =
      chosen(tokenizers::tokenizers(), {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "tokenizer"}});
  auto request = of("in.jsonl");
  request.append_eod = false;
  write("in.jsonl", "{\"text\": \"a c\"}\n{\"text\": \"a b\"}\n");
  expect_refused([&] { preprocess(*tokenizer, request); }, {"in.jsonl:2:", "id 70000", "has only 4", "without gaps"});
  write("in.jsonl", "{\"text\": \"a c\"}\n");
  preprocess(*tokenizer, request);
  EXPECT_EQ(documents("out_text_document"), (std::vector<Ids>{{0, 65535}}));
}

TEST_F(Preprocess, ThreadsChangeNoByte) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += text("{\"text\": \"", i % 500, i % 3 == 0 ? "" : " 7", "\"}\n");
  write("in.jsonl", lines);
  std::vector<std::string> seen;
  for (const int workers : {1, 2, 5}) {
    auto request = of("in.jsonl");
    request.workers = workers;
    EXPECT_EQ(run(request)[0].documents, 1000);
    seen.push_back(read_file("out_text_document.bin") + read_file("out_text_document.idx"));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_F(Preprocess, EmptyLinesPartDocuments) {
  write("in.txt", "\n\n1\n\n \t\r\n3 4\r\n\n5");
  EXPECT_EQ(run(of("in.txt", files::TextFormat::blank_lines))[0].prefix, "out");
  EXPECT_EQ(documents("out"), (std::vector<Ids>{{1, 500}, {3, 4, 500}, {5, 500}}));
}

TEST_F(Preprocess, AFileIsADocumentWhenItsNameSaysText) {
  write("a.txt", "1 2");
  write("b.txt", "3");
  auto request = of("a.txt");
  request.inputs.push_back("b.txt");
  EXPECT_EQ(run(request)[0].tokens, 5);
  EXPECT_EQ(documents("out"), (std::vector<Ids>{{1, 2, 500}, {3, 500}}));
  request.inputs.emplace_back("c.jsonl");
  write("c.jsonl", "");
  expect_refused([&] { run(request); }, {"--format"});
}

TEST_F(Preprocess, ALongFileIsOneDocumentOfManySequencesWithTheSameIds) {
  std::string lines;
  for (int i = 0; lines.size() < 900000; ++i)
    lines += text("line ", 977 * i, i % 7 == 0 ? " \n\n" : i % 11 == 0 ? ".\n/" : i % 5 == 0 ? "\xC3\xBC\n" : ",\n");
  const auto parts = files::cut_long_text(lines);
  EXPECT_NEAR(static_cast<double>(parts.size()), 200, 20);
  const unicode::UnicodeClasses classes;
  std::string joined;
  std::vector<std::size_t> bounds, whole;  // where pieces begin, cut part by part and in one go
  for (const auto& part : parts) {
    for (std::size_t at = 0; at < part.size(); at += unicode::next_piece(classes, part, at))
      bounds.push_back(joined.size() + at);
    joined += part;
  }
  EXPECT_EQ(joined, lines);
  for (const auto& part : parts) EXPECT_NE(part[0], '/');  // some expressions end pieces with [\r\n/]*
  for (std::size_t at = 0; at < lines.size(); at += unicode::next_piece(classes, lines, at)) whole.push_back(at);
  EXPECT_EQ(bounds, whole);
  for (const std::string short_text : {"", "a\n", "no line end at all"})
    EXPECT_EQ(files::cut_long_text(short_text).size(), 1U);
}

// The parts of a file would each have a token <s> of their own, in the middle of the document.
TEST_F(Preprocess, AFileThatMayNotBeCutIsEncodedAsOneText) {
  make_folder("tokenizer");
  write("tokenizer/tokenizer.json", R"({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "?": 2}, "unk_token": "?"},
      "post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": []}},
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": []}})");
  const auto tokenizer =
      chosen(tokenizers::tokenizers(), {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "tokenizer"}});
  std::string lines;
  for (int i = 0; i < 10000; ++i) lines += "a\n";
  write("in.txt", lines);
  auto request = of("in.txt");
  request.append_eod = false;
  EXPECT_EQ(preprocess(*tokenizer, request).files[0].sequences, 1);
  Ids expected(10001, 1);
  expected[0] = 0;
  EXPECT_EQ(documents("out"), std::vector<Ids>{expected});
  TextInput input{"in.txt", files::TextFormat::whole_file};
  input.may_be_cut = false;
  ChunkReader reader({input}, 1000, false, 10000);
  TextChunk chunk;
  expect_refused([&] { reader.next(chunk); }, {"in.txt: the text has 20000 bytes", "at most 10000", "--format"});
}

// train-bpe called its bytes no UTF-8.
TEST_F(Preprocess, ATextFileThatIsCompressedIsRefused) {
  write("in.txt", "\x28\xB5\x2F\xFD and so on");
  expect_refused([] { files::TextFile("in.txt", files::TextFormat::whole_file); },
                 {"in.txt: is compressed (Zstandard)"});
}

TEST_F(Preprocess, ParagraphsKeepTheirLines) {
  write("in.txt", "one\n two\n\nthree\n");
  files::TextFile file("in.txt", files::TextFormat::blank_lines);
  files::RawDocument document;
  ASSERT_TRUE(file.next(document));
  EXPECT_EQ(document.bytes, "one\n two");
  ASSERT_TRUE(file.next(document));
  EXPECT_EQ(document.bytes, "three");
  EXPECT_EQ(document.line, 4);
  EXPECT_FALSE(file.next(document));
}

TEST_F(Preprocess, EveryKeyGetsItsFiles) {
  write("in.jsonl", "{\"a\": \"1\", \"b\": [\"2\", \"3\"]}\n");
  auto request = of("in.jsonl");
  request.json_keys = {"a", "b"};
  EXPECT_EQ(run(request)[1].sequences, 2);
  EXPECT_EQ(documents("out_a_document"), (std::vector<Ids>{{1, 500}}));
  EXPECT_EQ(documents("out_b_document"), (std::vector<Ids>{{2, 3, 500}}));
}

TEST_F(Preprocess, TheFirstBadLineIsNamedAndNothingIsLeft) {
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += i == 200 || i == 250 ? "{\"text\": 5}\n" : "{\"text\": \"5\"}\n";
  write("in.jsonl", lines);
  write("out_text_document.bin", "old");
  auto request = of("in.jsonl");
  request.workers = 3;
  expect_refused([&] { run(request); }, {"in.jsonl:201:", "'text' is number"});
  EXPECT_EQ(read_file("out_text_document.bin"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator("."), {}), 2);
}

TEST_F(Preprocess, MistakesAreNamed) {
  const auto refused = [](const std::string& content, const std::vector<std::string>& parts) {
    write("in.jsonl", content);
    expect_refused([] { run(of("in.jsonl")); }, parts);
  };
  refused("[\"text\"]\n", {"in.jsonl:1:", "holds array"});
  refused("{\"text\": [\"1\", 2]}\n", {"in.jsonl:1:", "list 'text' holds number"});
  refused("{\"text\": \"1\"}\n{\"tex\n", {"in.jsonl:2:", "not JSON", "column"});
  refused("{\"text\": \"1\"}\n{\"text\": \"\xC3(\"}\n", {"in.jsonl:2:", "byte 11", "UTF-8"});
  expect_refused([] { run(of("absent.jsonl")); }, {"absent.jsonl"});
  refused("{\"text\": \"1\"}\n{\"text\": \"1 x\"}\n", {"in.jsonl:2:", "'x'"});
  write("in.txt", "1\n\n2\nth\xFFree\n");
  expect_refused([] { run(of("in.txt", files::TextFormat::blank_lines)); }, {"in.txt:4:", "byte 3"});
}

}  // namespace
}  // namespace tessera::preprocessing
