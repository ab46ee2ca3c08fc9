// Runs that read texts themselves: the same samples as from token files that were made of them before.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

#include "framework/base/files.h"
#include "framework/instructions/catalog.h"
#include "framework/instructions/instruction_writer.h"
#include "framework/instructions/tokens_of_texts.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::instructions {
namespace {

namespace fs = std::filesystem;
using TextOptions = std::map<std::string, std::string>;

const std::string rows_folder = std::string(TESTS_DATA) + "/instructions/";

const tokenizers::ByteTokenizer& bytes_of_chats() {
  static const tokenizers::ByteTokenizer one({"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}, "");
  return one;
}

class Texts : public InOwnFolder {
 protected:
  std::unique_ptr<data::DataSplits> splits(TextOptions options) {
    data::DataParts parts;
    parts.seq_length = length;
    parts.eod = bytes_of_chats().eod();
    parts.tokenizer = &bytes_of_chats();
    parts.vocab_size = bytes_of_chats().vocab_size();
    parts.asked = {8, 0, 0};
    parts.tell = [this](const std::string& line) { told += line + "\n"; };
    auto registry = data::dataset_registry();
    register_datasets(registry);
    options.insert({{"dataset_type", "instruction"}, {"split", "1,0,0"}, {"no_shuffle", "true"}});
    return chosen(registry, options, parts);
  }
  static TextOptions of_texts(const std::string& file, const std::string& handler) {
    const bool pairs = handler.ends_with("PairwiseHandler");
    return {{"data_path", file},
            {"handler_name", handler},
            {"is_pairwise_dataset", pairs ? "true" : "false"},
            {"prompt_type", "chatml"},
            {"data_cache_path", "own"}};
  }
  // All fields of the first 8 samples, in one list.
  std::vector<std::int32_t> rows(const TextOptions& options) {
    const auto made = splits(options);
    std::vector<std::int32_t> all;
    const auto count = made->train->rows_per_sample() * made->train->seq_length();
    for (std::int64_t i = 0; i < 8; ++i) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(count)), labels = tokens, positions = tokens,
                                                                         starts = tokens;
      std::vector<float> mask(tokens.size());
      made->train->read(i, {.samples = made->train->rows_per_sample(),
                            .seq_length = made->train->seq_length(),
                            .tokens = tokens,
                            .labels = labels,
                            .loss_mask = mask,
                            .positions = positions,
                            .document_start = starts});
      for (const auto* one : {&tokens, &labels, &positions, &starts}) all.insert(all.end(), one->begin(), one->end());
    }
    return all;
  }
  static std::size_t made_folders() {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator("own")) count += entry.is_directory() ? 1 : 0;
    return count;
  }
  std::string told;
  std::int64_t length = 96;  // many pairs are cut
};

TEST_F(Texts, GiveTheSamplesOfTokenFilesThatWereMadeOfThem) {
  struct Case {
    std::string file, handler;
    TextOptions more;
  };
  const std::string keys = R"({"history": "history", "system": "system"})";
  for (const auto& one :
       {Case{"pairs.jsonl", "AlpacaStylePairwiseHandler", {{"map_keys", keys}}},
        Case{"pair_messages.jsonl", "SharegptStylePairwiseHandler", {}},
        Case{"pairs.jsonl", "AlpacaStylePairwiseHandler", {{"enable_thinking", "true"}}},
        Case{"pairs.jsonl", "AlpacaStylePairwiseHandler", {{"enable_thinking", "false"}}},
        Case{"alpaca.parquet", "AlpacaStyleInstructionHandler", {}},
        Case{"pairs.jsonl", "AlpacaStylePairwiseHandler", {{"max_samples", "8"}}},
        Case{"alpaca.json", "AlpacaStyleInstructionHandler", {{"train_on_prompt", "true"}}},
        Case{"alpaca.jsonl", "AlpacaStyleInstructionHandler", {{"map_keys", keys}, {"mask_history", "true"}}},
        Case{"sharegpt.jsonl",
             "SharegptStyleInstructionHandler",
             {{"neat_pack", "true"}, {"reset_attention_mask", "true"}}}}) {
    InstructionWriteRequest request;
    request.inputs = {rows_folder + one.file};
    request.output_prefix = "p";
    request.handler_name = one.handler;
    request.prompt_type = "chatml";
    length = one.handler.ends_with("PairwiseHandler") ? 96 : 1024;
    const auto has = [&](const char* name) { return one.more.count(name) > 0; };
    if (has("map_keys")) request.map_keys = keys;
    request.train_on_prompt = has("train_on_prompt");
    request.mask_history = has("mask_history");
    if (has("max_samples")) request.max_rows = 8;
    if (has("enable_thinking")) {
      request.prompt_type = "qwen3";
      request.enable_thinking = one.more.at("enable_thinking") == "true";
    }
    if (has("neat_pack")) request.pack = request.neat_pack = true, request.seq_length = length;
    write_instructions(bytes_of_chats(), request);
    auto direct = of_texts(rows_folder + one.file, one.handler);
    direct.insert(one.more.begin(), one.more.end());
    direct["prompt_type"] = request.prompt_type;
    TextOptions packed = {{"data_path", "p"}, {"is_pairwise_dataset", direct["is_pairwise_dataset"]}};
    for (const auto* name : {"neat_pack", "reset_attention_mask"})
      if (has(name)) packed[name] = "true";
    EXPECT_EQ(rows(direct), rows(packed)) << one.file;
  }
}

TEST_F(Texts, BecomeTokenFilesOnceUntilTheyOrTheRequestChange) {
  fs::copy_file(rows_folder + "pairs.jsonl", "pairs.jsonl");
  auto options = of_texts("pairs.jsonl", "AlpacaStylePairwiseHandler");
  const auto first = rows(options);
  EXPECT_EQ(made_folders(), 1U);
  EXPECT_NE(told.find("making token files of pairs.jsonl"), std::string::npos) << told;
  told.clear();
  EXPECT_EQ(rows(options), first);
  EXPECT_EQ(told, "") << "nothing is made again";
  options["prompt_type"] = "empty";
  EXPECT_NE(rows(options), first);
  EXPECT_EQ(made_folders(), 2U);
  options["prompt_type"] = "chatml";
  write("pairs.jsonl", read_file("pairs.jsonl") +
                           "{\"instruction\": \"a\", \"input\": \"\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  EXPECT_EQ(rows(options), first) << "the first 8 rows are the same";
  EXPECT_EQ(made_folders(), 3U);
  options.erase("data_cache_path");
  rows(options);
  EXPECT_TRUE(fs::is_directory("cache/instructions"));
}

// Such as split_special_tokens, which no file, named token or ordinary text shows.
TEST_F(Texts, BecomeTokenFilesAgainIfAnOptionOfTheTokenizerChanges) {
  class WithOption final : public tokenizers::ByteTokenizer {
   public:
    explicit WithOption(std::string value)
        : ByteTokenizer({"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"}, ""), value_(std::move(value)) {}
    Identity identity() const override { return {"ByteTokenizer", {}, {{"split_special_tokens", value_}}}; }

   private:
    std::string value_;
  };
  InstructionWriteRequest request;
  request.inputs = {rows_folder + "pairs.jsonl"};
  request.handler_name = "AlpacaStylePairwiseHandler";
  request.prompt_type = "chatml";
  const auto folder = [&](const std::string& value) {
    return tokens_of_texts(WithOption(value), request, "own", [](const std::string&) {});
  };
  const auto first = folder("False");
  EXPECT_EQ(folder("False"), first);
  EXPECT_NE(folder("True"), first);
  EXPECT_EQ(made_folders(), 2U);
}

TEST_F(Texts, AreReadByOneOfSeveralAtATime) {
  InstructionWriteRequest request;
  request.inputs = {rows_folder + "pairs.jsonl"};
  request.handler_name = "AlpacaStylePairwiseHandler";
  request.prompt_type = "chatml";
  std::vector<std::string> prefixes(4);
  std::atomic<int> makers = 0;
  std::vector<std::thread> threads;
  for (auto& prefix : prefixes)
    threads.emplace_back([&] {
      prefix = tokens_of_texts(bytes_of_chats(), request, "own",
                               [&](const std::string& line) { makers += line.starts_with("making") ? 1 : 0; });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(makers, 1);
  for (const auto& prefix : prefixes) EXPECT_EQ(prefix, prefixes[0]);
  EXPECT_EQ(made_folders(), 1U);
}

TEST_F(Texts, ThatFailLeaveNothingAndWhatAKilledProcessLeftIsRemoved) {
  const std::string good = "{\"instruction\": \"a\", \"input\": \"\", \"chosen\": \"b\", \"rejected\": \"c\"}\n";
  write("bad.jsonl", good + "{\"instruction\": \"a\", \"input\": \"\", \"chosen\": \"b\"}\n");
  expect_refused([&] { splits(of_texts("bad.jsonl", "AlpacaStylePairwiseHandler")); },
                 {"bad.jsonl:2", "'rejected' is null"});
  EXPECT_TRUE(fs::is_empty("own")) << "neither files nor a lock";
  write("pairs.jsonl", good);
  const auto options = of_texts("pairs.jsonl", "AlpacaStylePairwiseHandler");
  splits(options);
  ASSERT_EQ(made_folders(), 1U);
  const auto made = fs::directory_iterator("own")->path();
  fs::rename(made, made.string() + ".host.1.unfinished");
  splits(options);
  EXPECT_EQ(made_folders(), 1U);
  EXPECT_TRUE(fs::is_directory(made));
}

TEST_F(Texts, ThatCannotBeReadAreRefusedWithTheReason) {
  const auto refuse = [&](TextOptions changes, const std::vector<std::string>& parts) {
    auto options = of_texts(rows_folder + "pairs.jsonl", "AlpacaStylePairwiseHandler");
    for (const auto& [name, value] : changes) options[name] = value;
    if (options["prompt_type"].empty()) options.erase("prompt_type");
    expect_refused([&] { splits(options); }, parts);
  };
  refuse({{"prompt_type", ""}}, {"handler_name", "without prompt_type"});
  refuse({{"is_pairwise_dataset", "false"}}, {"AlpacaStylePairwiseHandler", "is_pairwise_dataset is false"});
  refuse({{"handler_name", "AlpacaStyleInstructionHandler"}}, {"is_pairwise_dataset is true"});
  refuse({{"handler_name", "AlpacaHandler"}}, {"AlpacaHandler", "AlpacaStylePairwiseHandler"});
  refuse({{"map_keys", "{\"answer\": \"x\"}"}}, {"--map-keys", "answer"});
  refuse({{"data_path", "missing.jsonl"}}, {"missing.jsonl"});
  refuse({{"data_path", "none-*.jsonl"}}, {"none-*.jsonl"});
  refuse({{"data_path", "-"}}, {"standard input"});
  write("file", "");
  refuse({{"data_cache_path", "file"}}, {"file", "data_cache_path"});
}

}  // namespace
}  // namespace tessera::instructions
