// Files of instructions against those that MindSpeed-LLM's preprocess_data.py wrote from the same corpora
// (tests/peers/record_instruction_files.py).
#include "framework/instructions/instruction_writer.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/gpt/md5.h"
#include "framework/instructions/instruction_dataset.h"
#include "framework/instructions/instruction_templates.h"
#include "framework/tokenizers/token_origin.h"
#include "tests/chosen.h"
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
    else if (words[i] == "--train-on-prompt")
      made.train_on_prompt = true;
    else if (words[i] == "--mask-history")
      made.mask_history = true;
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

Words checksums(bool pairs) {
  Words sums, keys = {"input_ids", "attention_mask", "labels"};
  if (pairs) keys = {"chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"};
  for (const auto& key : keys)
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
      EXPECT_EQ(checksums(request.handler_name.ends_with("PairwiseHandler")), one["md5"].get<Words>()) << one;
    } catch (const ConfigError& error) {
      ADD_FAILURE() << one << ": " << error.what();
    }
    ++written;
  }
  EXPECT_GT(written, 280);
}

TEST_F(InstructionWriter, TellsWhichTokenizerItUsed) {
  write("in.json", "[{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}]");
  write_instructions(tokenizer(), request_of("in.json", {"AlpacaStyleInstructionHandler", "qwen"}));
  const std::string prefix = "p_packed_input_ids_document";
  EXPECT_TRUE(std::filesystem::exists(tokenizers::origin_file(prefix)));
  EXPECT_EQ(tokenizers::other_origin(prefix, &tokenizer()), "");
  const tokenizers::OtherBytes other;
  EXPECT_NE(tokenizers::other_origin(prefix, &other), "");
}

TEST_F(InstructionWriter, RefusesRowsWithFileAndLine) {
  const auto mentions = [](const std::string& error, const Words& parts) {
    for (const auto& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks " << part;
  };
  const std::string good = R"({"instruction": "a", "input": "", "output": "b"})";
  mentions(error_in(good + "\n\n{\"instruction\": \n", {"Alpaca", "default"}),
           {"in.json:3: ", "is not JSON: line 1, column 17: "});
  mentions(error_in(good + "\n[1]\n", {"Alpaca", "default"}), {"in.json:2: ", "JSON array", "expected an object"});
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

TEST_F(InstructionWriter, RefusesRowsThatAreNoPair) {
  const auto expect = [](const std::string& rows, Words arguments, const Words& parts) {
    write("in.json", rows);
    const auto error = error_of(request_of("in.json", arguments));
    for (const auto& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks " << part;
  };
  const std::string alpaca = "AlpacaStylePairwiseHandler", sharegpt = "SharegptStylePairwiseHandler";
  const std::string good = R"({"instruction": "a", "input": "", "chosen": "b", "rejected": "c"})";
  expect(good + "\n" + R"({"instruction": "a", "input": "", "chosen": "b"})", {alpaca, "default"},
         {"in.json:2: ", "'rejected' is null"});
  expect(R"({"instruction": "a", "input": "", "chosen": ["b"], "rejected": ["c"]})", {alpaca, "default"},
         {"in.json:1: ", "'rejected'", "two answers"});
  expect(R"({"instruction": "a", "input": "", "chosen": "b"})", {alpaca, "default"}, {"in.json:1: ", "'rejected'"});
  expect(R"({"instruction": "a", "input": "", "chosen": null, "rejected": "c"})", {alpaca, "default"},
         {"no row", "in.json:1: ", "'chosen'"});
  expect(good, {alpaca, "default", "--pack", "--seq-length", "50"}, {"--pack", "pairs"});
  expect(good, {alpaca, "default", "--append-eod"}, {"--append-eod", "pairs"});
  expect(good, {alpaca, "default", "--map-keys", R"({"rejected": null})"}, {"--map-keys", "rejected"});
  const std::string turn = R"({"conversations": [{"from": "human", "value": "a"}], "chosen": )";
  expect(turn + R"({"from": "gpt", "value": "b"}})", {sharegpt, "default"}, {"in.json:1: ", "'rejected' is missing"});
  expect(turn + R"({"from": "gpt", "value": "b"}, "rejected": {"from": "gpt"}})", {sharegpt, "default"},
         {"in.json:1: ", "'value' of 'rejected'", "null"});
  expect(turn + R"({"from": "gpt", "value": "b"}, "rejected": {"from": "function_call", "value": "c"}})",
         {sharegpt, "default"}, {"in.json:1: ", "function"});
  expect(turn + R"({"from": "human", "value": "b"}, "rejected": {"from": "gpt", "value": "c"}})", {sharegpt, "default"},
         {"no row", "in.json:1: ", "'chosen' has the role \"human\""});
}

TEST_F(InstructionWriter, CountsPairsThatTeachNothing) {
  const auto row = [](const std::string& chosen, const std::string& rejected) {
    return text(R"({"instruction": "a", "input": "", "chosen": ")", chosen, R"(", "rejected": ")", rejected, "\"}\n");
  };
  write("in.json", row("b", "c") + row("d", "d") + row("e", "e") + row(std::string(50, 'f'), "g") + row("h", ""));
  const auto result = write_instructions(
      tokenizer(), request_of("in.json", {"AlpacaStylePairwiseHandler", "empty", "--seq-length", "40"}));
  EXPECT_EQ(result.rows, 5);
  EXPECT_EQ(result.samples, 4);
  EXPECT_EQ(result.too_long, 1);
  EXPECT_EQ(result.equal_pairs, 2);
  EXPECT_EQ(result.first_equal_pair, "in.json:2");
  EXPECT_EQ(result.without_label, 1) << "of an empty answer nothing is learned";
}

// The labels that a conversation of three turns has, -100 as a dot.
TEST_F(InstructionWriter, LabelsOfPromptsAndOfTheHistoryAreChosen) {
  write("in.json", R"({"instruction": "E", "input": "", "output": "F", "history": [["A", "B"], ["C", "D"]]})");
  const std::string keys = R"({"history": "history"})";
  const auto labels = [&](const Words& flags) {
    Words arguments = {"AlpacaStyleInstructionHandler", "qwen3", "--map-keys", keys};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    write_instructions(tokenizer(), request_of("in.json", arguments));
    const InstructionFiles files("p");
    if (files.samples() == 0) return std::string();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(files.input_ids.length(0))), all(ids);
    files.input_ids.read(0, 0, ids);
    files.labels.read(0, 0, all);
    std::string shown;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t one = ids[i];
      EXPECT_TRUE(all[i] == one || all[i] == -100);
      const auto piece = tokenizer().piece(one);
      if (piece.size() == 1 && piece[0] >= 'A' && piece[0] <= 'F') shown += all[i] == one ? piece : ".";
    }
    return shown;
  };
  EXPECT_EQ(labels({}), ".B.D.F");
  EXPECT_EQ(labels({"--train-on-prompt"}), "ABCDEF");
  EXPECT_EQ(labels({"--mask-history"}), ".....F");
  // Each turn has a few tokens: the first ones are left out where the last one alone has labels.
  const auto cut = [&](const Words& flags) {
    for (int length = 20; length < 200; ++length) {
      auto with = flags;
      with.insert(with.end(), {"--seq-length", std::to_string(length)});
      const auto shown = labels(with);
      if (shown.size() >= 2 && shown.size() < 6) return shown;
    }
    return std::string("none");
  };
  EXPECT_EQ(cut({}), ".B");
  EXPECT_EQ(cut({"--mask-history"}), ".F");
}

// Llama2Tokenizer has the BOS token in front of each text, which a slot of a template is not.
TEST_F(InstructionWriter, OnlyATemplateWritesTheBeginningOfTextOfASentencePieceModel) {
  write("in.json", R"({"instruction": "Who?", "input": "", "output": "Lord God"})");
  const std::string model = std::string(TESTS_DATA) + "/sentencepiece/models/bpe.model";
  for (const auto* type : {"GPTSentencePieceTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer"})
    for (const auto* prompt_type : {"alpaca", "llama2"}) {
      const auto spm = chosen(tokenizers::tokenizers(), {{"tokenizer_type", type}, {"tokenizer_model", model}});
      write_instructions(*spm, request_of("in.json", {"AlpacaStyleInstructionHandler", prompt_type}));
      const InstructionFiles files("p");
      ASSERT_EQ(files.samples(), 1);
      std::vector<std::int32_t> ids(static_cast<std::size_t>(files.input_ids.length(0))), labels(ids), learned;
      files.input_ids.read(0, 0, ids);
      files.labels.read(0, 0, labels);
      std::copy_if(labels.begin(), labels.end(), std::back_inserter(learned), [](auto id) { return id != -100; });
      const auto gpt = chosen(tokenizers::tokenizers(),
                              {{"tokenizer_type", "GPTSentencePieceTokenizer"}, {"tokenizer_model", model}});
      auto answer = gpt->encode("Lord God");
      answer.push_back(spm->eod());
      EXPECT_EQ(learned, answer) << type << " " << prompt_type;
      const bool writes_bos = prompt_type == std::string("llama2");
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), writes_bos ? 1 : 0) << type << " " << prompt_type;
      EXPECT_EQ(ids.front() == 1, writes_bos) << type << " " << prompt_type;
    }
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

TEST_F(InstructionWriter, CountsRowsThatAreCutAndNamesTheFirst) {
  const auto row = [](std::size_t answer) {
    return text(R"({"instruction": "a", "input": "", "output": ")", std::string(answer, 'b'), "\"}\n");
  };
  write("in.json", row(5) + row(500) + row(99900) + row(100100));
  const auto counted = [](const Words& flags) {
    Words arguments = {"AlpacaStyleInstructionHandler", "qwen3"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const auto result = write_instructions(tokenizer(), request_of("in.json", arguments));
    return text(result.cut, " to ", result.cut_to, " at ", result.first_cut);
  };
  EXPECT_EQ(counted({"--seq-length", "400"}), "3 to 400 at in.json:2");
  EXPECT_EQ(counted({"--seq-length", "400", "--pack", "--neat-pack"}), "3 to 400 at in.json:2");
  EXPECT_EQ(counted({"--seq-length", "200000"}), "0 to 0 at ");
  EXPECT_EQ(counted({}), "1 to 100000 at in.json:4");
}

TEST_F(InstructionWriter, CountsRowsWithSeveralAnswers) {
  write("in.json", R"({"instruction": "a", "input": "", "output": ["b"]})"
                   "\n"
                   R"({"instruction": "a", "input": "", "output": ["b", "c"]})");
  const auto result = write_instructions(tokenizer(), request_of("in.json", {"AlpacaStyleInstructionHandler", "qwen"}));
  EXPECT_EQ(result.samples, 2);
  EXPECT_EQ(text(result.emptied, " at ", result.first_emptied), "1 at in.json:2");
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
