// Files of instructions against those that MindSpeed-LLM's preprocess_data.py wrote from the same corpora
// (tests/peers/record_instruction_files.py).
#include "framework/instructions/instruction_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/gpt/md5.h"
#include "framework/instructions/instruction_dataset.h"
#include "framework/instructions/instruction_templates.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::instructions {
namespace {

using LibraryJson = nlohmann::ordered_json;
using Words = std::vector<std::string>;

const std::string instructions_folder = std::string(TESTS_DATA) + "/instructions/";

const LibraryJson& recorded_files() {
  static const auto all = LibraryJson::parse(read_file(instructions_folder + "files.json"));
  return all;
}

const tokenizers::ByteTokenizer& tokenizer() {
  static const tokenizers::ByteTokenizer one(recorded_files()["special_tokens"].get<Words>(), "");
  return one;
}

/// The request of a command line: handler, prompt type, flags.
InstructionWriteRequest request_of(const std::string& input, const Words& words) {
  InstructionWriteRequest made;
  made.inputs = {input};
  made.output_prefix = "p";
  made.handler_name = words.at(0);
  made.prompt_type = words.at(1);
  for (std::size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "--pack")
      made.pack = true;
    else if (words[i] == "--neat-pack")
      made.neat_pack = true;
    else if (words[i] == "--append-eod")
      made.append_eod = true;
    else if (words[i] == "--map-keys")
      made.map_keys = words.at(++i);
    else if (words[i] == "--seq-length")
      made.seq_length = std::stoll(words.at(++i));
    else if (words[i] == "--enable-thinking")
      made.enable_thinking = words.at(++i) == "none" ? std::nullopt : std::optional(words[i] == "true");
    else
      ADD_FAILURE() << "unknown flag " << words[i];
  }
  return made;
}

Words checksums() {
  Words sums;
  for (const auto* key : {"input_ids", "attention_mask", "labels"})
    for (const auto* end : {"bin", "idx"})
      sums.push_back(gpt::md5_hex(read_file(text("p_packed_", key, "_document.", end))));
  return sums;
}

class InstructionWriter : public InOwnFolder {
 protected:
  // Where files need no disk if there is such a folder: each run waits until six of them are on it.
  InstructionWriter() : InOwnFolder(std::filesystem::exists("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {}
  static std::string error_of(const InstructionWriteRequest& request) {
    try {
      write_instructions(tokenizer(), request);
    } catch (const ConfigError& error) {
      EXPECT_TRUE(std::filesystem::is_empty(".") || std::filesystem::exists("in.json")) << "files are left";
      EXPECT_FALSE(std::filesystem::exists("p_packed_labels_document.bin.unfinished"));
      return error.what();
    }
    return "no error";
  }
  // What is wrong with `rows`, of Alpaca, or of ShareGPT.
  static std::string error_in(const std::string& rows, Words arguments) {
    write("in.json", rows);
    arguments[0] += "StyleInstructionHandler";
    return error_of(request_of("in.json", arguments));
  }
};

TEST_F(InstructionWriter, WritesTheBytesOfMindSpeedLlm) {
  int written = 0, stopped = 0;
  for (const auto& one : recorded_files()["cases"]) {
    auto request = request_of(instructions_folder + one["input"].get<std::string>(), one["arguments"]);
    const auto built_in = prompt_template_names();
    if (std::find(built_in.begin(), built_in.end(), request.prompt_type) == built_in.end())
      request.prompt_type_path = instructions_folder + "templates.json";
    request.workers = 1 + written % 3;
    if (one.contains("error")) {
      EXPECT_NE(error_of(request).find(".json"), std::string::npos) << one;
      ++stopped;
      continue;
    }
    try {
      write_instructions(tokenizer(), request);
      EXPECT_EQ(checksums(), one["md5"].get<Words>()) << one;
    } catch (const ConfigError& error) {
      ADD_FAILURE() << one << ": " << error.what();
    }
    ++written;
  }
  EXPECT_GT(written, 250);
}

TEST_F(InstructionWriter, RefusesRowsWithFileAndLine) {
  const auto mentions = [](const std::string& error, const Words& parts) {
    for (const auto& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks " << part;
  };
  const std::string good = R"({"instruction": "a", "input": "", "output": "b"})";
  mentions(error_in(good + "\n\n{\"instruction\": \n", {"Alpaca", "default"}), {"in.json:3: ", "JSON"});
  mentions(error_in(good + "\n[1]\n", {"Alpaca", "default"}), {"in.json:2: ", "JSON"});
  mentions(error_in("[\n" + good + ",\n7]", {"Alpaca", "default"}), {"in.json:3: ", "not an object"});
  mentions(error_in("[\n" + good + ",\n" + good, {"Alpaca", "default"}), {"in.json:3: ", "ends"});
  mentions(error_in("[" + good + " " + good + "]", {"Alpaca", "default"}), {"in.json:1: ", "comma"});
  mentions(error_in("[" + good + "] " + good, {"Alpaca", "default"}), {"in.json:1: ", "behind the end"});
  mentions(error_in(R"({"instruction": 5, "input": "", "output": "b"})", {"Alpaca", "default"}),
           {"in.json:1: ", "'instruction'", "number"});
  mentions(error_in(R"({"instruction": "a", "output": "b"})", {"Alpaca", "default"}),
           {"in.json:1: ", "'input'", "--map-keys"});
  mentions(error_in(R"({"instruction": "a", "input": "", "output": null})", {"Alpaca", "default"}),
           {"no row", "in.json:1: ", "'output'"});
  mentions(error_in("", {"Alpaca", "default"}), {"no row", "0 rows"});
  mentions(error_in(good, {"Alpaca", "default", "--map-keys", "[]"}), {"--map-keys", "object"});
  mentions(error_in(good, {"Alpaca", "default", "--map-keys", R"({"messages": "x"})"}), {"'messages'", "prompt"});
  mentions(error_in(good, {"Alpaca", "nothing"}), {"'nothing'", "qwen", "--prompt-type-path"});
  mentions(error_in(good, {"Pairwise", "default"}), {"PairwiseStyleInstructionHandler", "AlpacaStyle"});
  mentions(error_in(good, {"Alpaca", "default", "--pack"}), {"--pack", "--seq-length"});
  mentions(error_in(good, {"Alpaca", "default", "--neat-pack"}), {"--neat-pack", "--pack"});
  mentions(error_in(R"({"conversations": []})", {"Sharegpt", "default"}), {"in.json:1: ", "'conversations'"});
  mentions(error_in(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "{}"}]})",
                    {"Sharegpt", "default"}),
           {"in.json:1: ", "function"});
  mentions(error_in(R"({"conversations": [{"from": "robot", "value": "a"}, {"from": "gpt", "value": "b"}]})",
                    {"Sharegpt", "default"}),
           {"no row", "in.json:1: message 1", "\"robot\"", "'human'"});
  mentions(error_in(R"({"instruction": "", "input": "", "output": ""})", {"Alpaca", "chatml", "--seq-length", "1"}),
           {"no error"});  // a document without a sequence, as there
}

TEST_F(InstructionWriter, RefusesATokenizerWithoutTheTokensOfATemplate) {
  write("in.json", R"({"instruction": "a", "input": "", "output": "b"})");
  const tokenizers::ByteTokenizer plain({"<unk>", "<s>", "</s>"}, "");
  try {
    write_instructions(plain, request_of("in.json", {"AlpacaStyleInstructionHandler", "chatml"}));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'<|im_end|>'"), std::string::npos) << error.what();
  }
}

TEST_F(InstructionWriter, SkipsRowsWithErrorsIfAsked) {
  write("in.json", "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\nbroken\n{\"output\": null}\n");
  auto request = request_of("in.json", {"AlpacaStyleInstructionHandler", "default"});
  request.skip_bad = true;
  const auto result = write_instructions(tokenizer(), request);
  EXPECT_EQ(result.rows, 3);
  EXPECT_EQ(result.samples, 1);
  EXPECT_EQ(result.total.skipped, 1);
  EXPECT_EQ(result.left_out, 1);
  ASSERT_EQ(result.reasons.size(), 2U);
  EXPECT_EQ(result.reasons[0].substr(0, 10), "in.json:2:");
}

// The cut in proportion leaves nothing of an answer that a much longer prompt precedes.
TEST_F(InstructionWriter, CountsSamplesWithoutALabel) {
  write("in.json", text(R"({"instruction": "a", "input": "", "output": "b"})", "\n", R"({"instruction": ")",
                        std::string(500, 'a'), R"(", "input": "", "output": "bcdefghijk"})", "\n"));
  const auto result = write_instructions(
      tokenizer(), request_of("in.json", {"AlpacaStyleInstructionHandler", "qwen3", "--seq-length", "16"}));
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(result.without_label, 1);
  const auto longer = write_instructions(
      tokenizer(), request_of("in.json", {"AlpacaStyleInstructionHandler", "qwen3", "--seq-length", "600"}));
  EXPECT_EQ(longer.samples, 2);
  EXPECT_EQ(longer.without_label, 0);
}

TEST_F(InstructionWriter, WritesWhatDatasetTypeInstructionReads) {
  auto request = request_of(instructions_folder + "sharegpt.jsonl", {"SharegptStyleInstructionHandler", "qwen",
                                                                     "--seq-length", "150", "--pack", "--neat-pack"});
  const auto result = write_instructions(tokenizer(), request);
  const auto files = std::make_shared<InstructionFiles>("p");
  ASSERT_EQ(files->samples(), result.samples);
  EXPECT_EQ(files->input_ids.type(), indexed::TokenType::int32);
  InstructionDataset::Request reading;
  for (std::int64_t i = 0; i < files->samples(); ++i) reading.order.push_back(i);
  reading.seq_length = 150;
  reading.vocab_size = tokenizer().vocab_size();
  reading.eod = tokenizer().token_id("<|im_end|>");
  reading.rules.neat_pack = reading.rules.reset_attention_mask = true;
  const InstructionDataset data(files, reading);
  std::vector<std::int32_t> tokens(150), labels(150), positions(150), start(150), all(150);
  std::vector<float> mask(150);
  std::size_t conversations = 0;
  for (std::int64_t i = 0; i < data.samples(); ++i) {
    data.read(i, {.samples = 1,
                  .seq_length = 150,
                  .tokens = tokens,
                  .labels = labels,
                  .loss_mask = mask,
                  .positions = positions,
                  .document_start = start});
    files->input_ids.read(i, 0, all);
    EXPECT_EQ(tokens, all);
    for (std::size_t t = 0; t < 149; ++t) EXPECT_TRUE(mask[t] == 0.0F || labels[t] == all[t + 1]) << i << " " << t;
    EXPECT_GT(std::count(mask.begin(), mask.end(), 1.0F), 0);
    files->attention_mask.read(i, 0, all);
    conversations += static_cast<std::size_t>(*std::max_element(all.begin(), all.end()));
  }
  EXPECT_EQ(conversations, static_cast<std::size_t>(result.rows - result.left_out));
  EXPECT_GT(conversations, static_cast<std::size_t>(result.samples));
}

TEST(PromptTypes, OfMindSpeedLlmAreKnownAlsoIfTheirTemplatesAreNotBuiltIn) {
  EXPECT_EQ(efficient_eos_of("gemma"), true);
  EXPECT_EQ(efficient_eos_of("llama3"), false);
  EXPECT_EQ(efficient_eos_of("gpt_oss"), true);
  EXPECT_EQ(efficient_eos_of("qwen_lf"), false);
  EXPECT_EQ(efficient_eos_of("nobody"), std::nullopt);
  EXPECT_THROW(prompt_template("gpt_oss"), ConfigError);
}

}  // namespace
}  // namespace tessera::instructions
