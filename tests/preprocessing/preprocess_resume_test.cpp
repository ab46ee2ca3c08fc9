// Whatever the threads, the chunks and the interruptions, the bytes are the same.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "framework/base/files.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/preprocessing/preprocess.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::preprocessing {
namespace {

using Ids = std::vector<std::int32_t>;

std::string files_of(const std::string& prefix) {
  return read_file(prefix + ".bin") + "|" + read_file(prefix + ".idx");
}

// Random JSON lines of numbers for the NullTokenizer, and the sentences that they should become.
struct Corpus {
  struct Document {
    std::vector<Ids> sentences;
    bool good = true;
  };
  std::string lines;
  std::vector<Document> documents;

  Corpus(std::mt19937& random, int count, bool with_bad) {
    const auto upto = [&](std::uint32_t below) { return static_cast<int>(random() % below); };
    for (int d = 0; d < count; ++d) {
      documents.emplace_back();
      auto& document = documents.back();
      const bool list = upto(4) == 0;
      std::string value;
      for (int s = list ? upto(4) : 1; s > 0; --s) {
        document.sentences.emplace_back();
        std::string words;
        for (int n = upto(upto(20) == 0 ? 300 : 6); n > 0; --n) {
          document.sentences.back().push_back(upto(500));
          words += (words.empty()  ? ""
                    : upto(3) == 0 ? "\\u0020"
                                   : " ") +
                   std::to_string(document.sentences.back().back());
        }
        value += (value.empty() ? "\"" : ", \"") + words + "\"";
      }
      if (list) value = "[" + value + "]";
      static const std::vector<std::string> bad = {"",
                                                   "{\"text\": 5}",
                                                   "{\"text\": \"1 x\"}",
                                                   "{\"tex",
                                                   "{\"text\": [\"1\", \"\xFF\"]}",
                                                   "{\"other\": \"1\"}",
                                                   "{\"text\": [\"7 7\", \"9 y\"]}"};
      document.good = !with_bad || upto(8) != 0;
      // An empty line behind a lone \r would be the second half of \r\n.
      const std::size_t least = !lines.empty() && lines.back() == '\r' ? 1 : 0;
      lines += document.good ? "{\"id\": " + std::to_string(d) + ", \"text\": " + value + "}"
                             : bad[least + random() % (bad.size() - least)];
      if (d + 1 < count || upto(2) == 0) {
        static const std::vector<std::string> ends = {"\n", "\n", "\r\n", "\n", "\r"};
        lines += ends[random() % ends.size()];
      } else if (lines.empty() || lines.back() == '\n' || lines.back() == '\r') {
        lines += "\n";
      }
    }
  }

  void write(const std::string& prefix, std::size_t first, std::size_t last, std::size_t step) const {
    indexed::IndexedDatasetBuilder builder(prefix, indexed::TokenType::uint16);
    append(builder, first, last, step);
    builder.finish();
  }
  void append(indexed::IndexedDatasetBuilder& builder, std::size_t first, std::size_t last, std::size_t step) const {
    for (auto d = first; d < last; d += step) {
      if (!documents[d].good) continue;
      std::vector<Ids> full;
      for (const auto& sentence : documents[d].sentences)
        if (!sentence.empty()) full.push_back(sentence);
      if (!full.empty()) full.back().push_back(500);
      for (const auto& sentence : full) builder.add_sequence(sentence);
      builder.end_document();
    }
  }
};

class Resume : public InOwnFolder {
 protected:
  static PreprocessResult run(const PreprocessRequest& request,
                              const std::function<void(const PreprocessProgress&)>& progress = {}) {
    return preprocess(*chosen(tokenizers::tokenizers(), {{"tokenizer_type", "NullTokenizer"}, {"vocab_size", "500"}}),
                      request, progress);
  }
  static PreprocessRequest request_of(std::mt19937& random) {
    PreprocessRequest request;
    request.inputs = {"in.jsonl"};
    request.output_prefix = "out";
    request.append_eod = true;
    request.workers = 1 + static_cast<int>(random() % 5);
    request.chunk_bytes = 1 + random() % (random() % 2 == 0 ? 60 : 3000);
    return request;
  }
  static std::size_t entries() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("."), {}));
  }
  std::uint32_t seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
};

// The expected files are made one sequence after the other by the builder, from what the generator meant.
TEST_F(Resume, ThreadsChunksAndPartitionsChangeNoByte) {
  SCOPED_TRACE(text("seed ", seed_));
  for (int round = 0; round < 12; ++round) {
    const bool with_bad = random_() % 2 == 0;
    const Corpus corpus(random_, static_cast<int>(random_() % 120), with_bad);
    std::ofstream("in.jsonl", std::ios::binary) << corpus.lines;
    const auto count = corpus.documents.size();
    auto request = request_of(random_);
    request.skip_bad = with_bad;
    request.partitions = 1 + static_cast<int>(random_() % 3);
    request.keep_sequential_samples = random_() % 2 == 0;
    const auto result = run(request);
    const auto parts = static_cast<std::size_t>(request.partitions);
    if (parts == 1) {
      corpus.write("expected", 0, count, 1);
    } else {
      indexed::IndexedDatasetBuilder all("expected", indexed::TokenType::uint16);
      const auto block = std::max<std::size_t>(1, (count + parts - 1) / parts);
      for (std::size_t p = 0; p < parts; ++p) {
        const bool blocks = request.keep_sequential_samples;
        const auto first = blocks ? std::min(count, p * block) : p;
        const auto last = blocks ? std::min(count, first + block) : count, step = blocks ? 1 : parts;
        corpus.write("part", first, last, step);
        corpus.append(all, first, last, step);
        EXPECT_TRUE(files_of("part") == files_of(text("out_", p, "_text_document"))) << "partition " << p;
      }
      all.finish();
    }
    ASSERT_TRUE(files_of("expected") == files_of("out_text_document")) << "round " << round;
    const auto good = std::count_if(corpus.documents.begin(), corpus.documents.end(),
                                    [](const Corpus::Document& document) { return document.good; });
    EXPECT_EQ(result.total.documents, good);
    EXPECT_EQ(result.total.skipped, static_cast<std::int64_t>(count) - good);
  }
}

TEST_F(Resume, AKilledRunContinuesToTheSameBytes) {
  SCOPED_TRACE(text("seed ", seed_));
  int kills = 0, continued = 0;
  for (int round = 0; round < 4; ++round) {
    const Corpus corpus(random_, 200, round % 2 == 0);
    std::ofstream("in.jsonl", std::ios::binary) << corpus.lines;
    auto request = request_of(random_);
    request.chunk_bytes += 100;
    request.skip_bad = true;
    request.partitions = 1 + static_cast<int>(random_() % 2);
    const auto expected_of = request;
    run(expected_of);
    const auto expected = files_of("out_text_document");
    for (const auto* end : {".bin", ".idx"}) std::filesystem::remove(text("out_text_document", end));
    // The first run of the first round is killed where it has saved a point, however fast the machine is: every
    // corpus has more than 1000 bytes.
    request.resume_point_bytes = 1 + static_cast<std::int64_t>(random_() % (round == 0 ? 1000 : 8000));
    for (int attempt = 0;; ++attempt) {
      const bool at_point = round == 0 && attempt == 0;
      ASSERT_LT(attempt, 200);
      const auto more = static_cast<std::uint32_t>(attempt) + 1;  // so that it ends on any machine
      const auto steps = static_cast<int>(random_() % (10 * more));
      const auto microseconds = static_cast<int>(random_() % (4000 * more));
      const auto child = fork();
      if (child == 0) {
        int left = steps;
        try {
          run(request, [&](const PreprocessProgress&) {
            const bool now =
                at_point ? std::filesystem::exists("out.unfinished.json") : microseconds % 2 == 0 && left-- == 0;
            if (now) ::kill(::getpid(), SIGKILL);
          });
        } catch (...) {
          ::_exit(1);
        }
        ::_exit(0);
      }
      if (!at_point && microseconds % 2 != 0) {
        ::usleep(static_cast<useconds_t>(microseconds));
        ::kill(child, SIGKILL);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      request.resume = true;
      if (WIFEXITED(status)) {
        ASSERT_EQ(WEXITSTATUS(status), 0);
        break;
      }
      ++kills;
      continued += std::filesystem::exists("out.unfinished.json") ? 1 : 0;
    }
    ASSERT_TRUE(files_of("out_text_document") == expected) << "round " << round;
    for (const auto& entry : std::filesystem::directory_iterator("."))
      EXPECT_EQ(entry.path().string().find("unfinished"), std::string::npos) << entry.path();
  }
  EXPECT_GT(kills, 0);
  EXPECT_GT(continued, 0);
}

// A limit on the size of files stands for a disk that is full.
TEST_F(Resume, AFullDiskKeepsWhatResumeNeedsAndSaysSo) {
  const Corpus corpus(random_, 4000, false);
  std::ofstream("in.jsonl", std::ios::binary) << corpus.lines;
  auto request = request_of(random_);
  request.chunk_bytes = 500;
  run(request);
  const auto expected = files_of("out_text_document");
  for (const auto* end : {".bin", ".idx"}) std::filesystem::remove(text("out_text_document", end));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  auto limited = before;
  for (const rlim_t most : {rlim_t{10000}, rlim_t{40000}, rlim_t{70000}}) {
    limited.rlim_cur = most;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
    std::string told;
    try {
      run(request);
    } catch (const IoError& error) {
      told = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(told.find("File too large"), std::string::npos) << told;
    EXPECT_NE(told.find("--resume"), std::string::npos) << told;
    EXPECT_TRUE(std::filesystem::exists("out.unfinished.json"));
    EXPECT_FALSE(std::filesystem::exists("out_text_document.bin"));
    request.resume = true;
  }
  EXPECT_GT(run(request).resumed_documents, 0);
  EXPECT_TRUE(files_of("out_text_document") == expected);
  EXPECT_EQ(entries(), 3U);
}

TEST_F(Resume, TheFilesOfAnotherRunThatStillWritesAreNotTouched) {
  const Corpus corpus(random_, 400, false);
  std::ofstream("in.jsonl", std::ios::binary) << corpus.lines;
  auto request = request_of(random_);
  request.chunk_bytes = 500;
  request.resume_point_bytes = 1000;
  run(request);
  const auto expected = files_of("out_text_document");
  int tries = 0;
  run(request, [&](const PreprocessProgress& now) {
    if (now.documents < 200 || tries > 1) return;
    for (auto second = request; tries < 2; ++tries) {
      second.resume = tries == 1;
      expect_refused([&] { run(second); }, {"out_text_document.bin.unfinished", "process", "wait"});
    }
  });
  EXPECT_EQ(tries, 2);
  EXPECT_TRUE(files_of("out_text_document") == expected);
  EXPECT_EQ(entries(), 3U);
}

TEST_F(Resume, AnotherRequestOrInputIsRefused) {
  const Corpus corpus(random_, 400, false);
  std::ofstream("in.jsonl", std::ios::binary) << corpus.lines;
  auto request = request_of(random_);
  request.chunk_bytes = 500;
  request.resume_point_bytes = 1000;
  const auto interrupted = [&] {
    int left = 10;
    const auto child = fork();
    if (child == 0) {
      run(request, [&](const PreprocessProgress&) {
        if (left-- == 0) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  };
  interrupted();
  request.resume = true;
  request.append_eod = false;
  expect_refused([&] { run(request); }, {"--resume", "--append-eod", "differs"});
  request.append_eod = true;
  const bool open = corpus.lines.back() != '\n' && corpus.lines.back() != '\r';
  std::ofstream("in.jsonl", std::ios::app) << (open ? "\n" : "") << "{\"text\": \"1\"}\n";
  expect_refused([&] { run(request); }, {"--resume", "--input", "differs"});
  std::ofstream("out.unfinished.json") << "{\"request\": {}, \"tot";
  expect_refused([&] { run(request); }, {"out.unfinished.json", "damaged"});
  request.resume = false;
  EXPECT_EQ(run(request).total.documents, 401);
  EXPECT_EQ(entries(), 3U);
  request.resume = true;
  EXPECT_NE(run(request).notes.at(0).find("nothing to resume"), std::string::npos);
}

}  // namespace
}  // namespace tessera::preprocessing
