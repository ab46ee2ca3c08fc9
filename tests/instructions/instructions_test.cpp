// Instruction data against samples that Megatron-LM and MindSpeed-LLM made (tests/peers/record_instructions.py).
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "framework/base/files.h"
#include "framework/data/dataset.h"
#include "framework/instructions/catalog.h"
#include "framework/instructions/instruction_dataset.h"
#include "framework/instructions/sft_dataset.h"
#include "framework/unicode/utf8.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::instructions {
namespace {

data::DatasetRegistry datasets() {
  auto registry = data::dataset_registry();
  register_datasets(registry);
  return registry;
}

using LibraryJson = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

const std::string samples_folder = std::string(TESTS_DATA) + "/instructions/";

const LibraryJson& sft_cases() {
  static const auto all = LibraryJson::parse(read_file(samples_folder + "sft.json"));
  return all;
}

/// Lives until the tests end.
const tokenizers::Tokenizer* byte_tokenizer(const std::string& chat_template = sft_cases()["chat_template"]) {
  static std::map<std::string, std::unique_ptr<const tokenizers::Tokenizer>> made;
  auto& one = made[chat_template];
  if (!one)
    one = std::make_unique<tokenizers::ByteTokenizer>(sft_cases()["special_tokens"].get<std::vector<std::string>>(),
                                                      chat_template);
  return one.get();
}

struct Sample {
  explicit Sample(const data::Dataset& data, std::int64_t index)
      : tokens(static_cast<std::size_t>(data.seq_length())),
        labels(tokens),
        positions(tokens),
        start(tokens),
        mask(tokens.size()) {
    data.read(index, {.samples = 1,
                      .seq_length = data.seq_length(),
                      .tokens = tokens,
                      .labels = labels,
                      .loss_mask = mask,
                      .positions = positions,
                      .document_start = start});
  }
  Ids tokens, labels, positions, start;
  std::vector<float> mask;
};

/// Where each token's part begins, of the bounds of all parts.
Ids starts_of(const Ids& bounds, std::size_t length) {
  Ids starts(length);
  std::size_t part = 0;
  for (std::size_t i = 0; i < length; ++i) {
    while (part + 1 < bounds.size() && static_cast<std::size_t>(bounds[part + 1]) <= i) ++part;
    starts[i] = bounds[part];
  }
  return starts;
}

/// Megatron-LM's loss mask, with the ends of turns learned where padding is the end-of-document token: Megatron-LM
/// masks each label that equals the padding token. The template writes a newline after that token, so it ends no
/// sample.
std::vector<float> learned_with_ends(const LibraryJson& recorded) {
  auto mask = recorded["loss_mask"].get<std::vector<float>>();
  if (recorded["prompt_format"] != "default") return mask;
  const auto tokens = recorded["tokens"].get<Ids>();
  const auto eod = byte_tokenizer()->eod();
  auto given = tokens.size();
  while (given > 0 && tokens[given - 1] == eod) --given;
  for (std::size_t i = 1; i < given; ++i)
    if (tokens[i] == eod) mask[i - 1] = 1;
  return mask;
}

TEST(Sft, SamplesAreThoseOfMegatronLm) {
  const auto file = std::make_shared<ConversationFile>(samples_folder + "conversations.jsonl");
  int seen = 0, masked = 0;
  for (const auto& one : sft_cases()["cases"]) {
    tokenizers::SftFormat format;
    format.prompt_format = one["prompt_format"];
    SftDataset::Request request;
    request.lines = {one["lines"][0], one["lines"][1]};
    request.samples = 20;
    request.seq_length = one["seq_length"];
    request.vocab_size = 256 + 7;
    const SftDataset data(file, std::make_shared<tokenizers::SftTokenizer>(byte_tokenizer(), format), request);
    const Sample got(data, one["index"]);
    auto labels = one["labels"].get<Ids>();
    for (auto& label : labels) label = label == -100 ? -1 : label;
    const auto what = text(one["prompt_format"], " ", one["seq_length"], " ", one["index"]);
    EXPECT_EQ(got.tokens, one["tokens"].get<Ids>()) << what;
    EXPECT_EQ(got.labels, labels) << what;
    EXPECT_EQ(got.mask, learned_with_ends(one)) << what;
    EXPECT_EQ(got.positions, one["position_ids"].get<Ids>()) << what;
    EXPECT_EQ(got.start, starts_of(one["cu_seqlens"].get<Ids>(), got.start.size())) << what;
    masked += static_cast<int>(std::count(labels.begin(), labels.end(), -1) > 0);
    ++seen;
  }
  EXPECT_EQ(seen, 120);
  EXPECT_GT(masked, 60);
}

class SftFile : public InOwnFolder {};

TEST_F(SftFile, ThatIsTruncatedWhileItIsReadIsNamed) {
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += R"({"messages": [{"role": "user", "content": "hello"}]})"
             "\n";
  write("talks.jsonl", lines);
  const ConversationFile file("talks.jsonl");
  EXPECT_EQ(file.conversations(999).size(), 1U);
  std::filesystem::resize_file("talks.jsonl", 100);
  for (const std::int64_t line : {0, 500, 999}) EXPECT_THROW(file.conversations(line), IoError) << line;
}

class SftText : public InOwnFolder {
 protected:
  static std::unique_ptr<SftDataset> open(const tokenizers::SftFormat& format, std::int64_t lines_per_sample = 1,
                                          const std::string& chat_template = sft_cases()["chat_template"]) {
    const auto file = std::make_shared<ConversationFile>("c.jsonl");
    SftDataset::Request request;
    request.lines = {0, file->lines()};
    request.samples = 8;
    request.seq_length = 60;
    request.lines_per_sample = lines_per_sample;
    return std::make_unique<SftDataset>(
        file, std::make_shared<tokenizers::SftTokenizer>(byte_tokenizer(chat_template), format), request);
  }
  static std::string learnt(const Sample& sample) {
    std::string out;
    for (std::size_t i = 0; i < sample.labels.size(); ++i)
      if (sample.mask[i] > 0) out += sample.labels[i] < 256 ? static_cast<char>(sample.labels[i]) : '$';
    return out;
  }
};

TEST_F(SftText, TheLossOfAnyTemplateCanCountAnswersOnly) {
  write("c.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}, )"
                   R"({"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}]})");
  tokenizers::SftFormat format;
  format.prompt_format = "default";
  EXPECT_EQ(learnt(Sample(*open(format), 0)).substr(0, 9), "user\na$\n$");  // all but the first token and padding
  format.answers_only = true;
  EXPECT_EQ(learnt(Sample(*open(format), 0)), "one$\ntwo$\n");
  format.chat_template = "{% for m in messages %}{{ m.role if loop.last else '' }}{{ m.content }}{% endfor %}";
  expect_refused([&] { Sample(*open(format), 0); }, {"c.jsonl:1", "message 2", "sft_answers_only"});
}

TEST_F(SftText, TheLossCanCountTheLastAnswerOnly) {
  write("c.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}, )"
                   R"({"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}]})"
                   "\n"
                   R"({"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "three"}]})");
  tokenizers::SftFormat format;
  format.mask_history = true;
  format.answers_only = true;
  format.prompt_format = "default";
  EXPECT_EQ(learnt(Sample(*open(format), 0)), "two$\n");
  EXPECT_EQ(learnt(Sample(*open(format), 1)), "three$\n");
  const auto* const brief =
      "{% for m in messages %}{{ m.role[:1] + m.content + '</s>' }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  EXPECT_EQ(learnt(Sample(*open(format, 2, brief), 0)), "two$three$") << "packed conversations keep theirs each";
  format.answers_only.reset();
  expect_refused([&] { open(format); }, {"mask_history", "sft_answers_only: true"});
}

// A model that does not learn the token that ends its answers never stops.
TEST_F(SftText, TheEndOfAnAnswerIsLearnedWhateverTokenPads) {
  write("c.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}, )"
                   R"({"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}]})");
  const auto file = std::make_shared<ConversationFile>("c.jsonl");
  const auto special = sft_cases()["special_tokens"].get<std::vector<std::string>>();
  for (const std::string end : {"</s>", "<SPECIAL_12>"})
    for (const std::string pad : {"", "</s>", "<SPECIAL_12>", "<SPECIAL_10>"})
      for (const bool answers_only : {true, false})
        for (const std::int64_t length : {12, 16, 53}) {  // cut in the last answer, exactly as long, padded
          const tokenizers::ByteTokenizer tokenizer(special, "", pad);
          tokenizers::SftFormat format{"default", "{% for m in messages %}<s>{{ m.content }}" + end + "{% endfor %}",
                                       answers_only};
          if (answers_only)
            format.chat_template = *format.chat_template + "{% if add_generation_prompt %}<s>{% endif %}";
          SftDataset::Request request;
          request.lines = {0, 1};
          request.samples = 1;
          request.seq_length = length;
          const Sample got(SftDataset(file, std::make_shared<tokenizers::SftTokenizer>(&tokenizer, format), request),
                           0);
          const std::string all = answers_only ? "one$two$" : "a$$one$$b$$two$";
          const auto expected = length == 12 ? all.substr(0, answers_only ? 4 : 11) : all;
          EXPECT_EQ(learnt(got), expected) << end << " " << pad << " " << answers_only << " " << length;
        }
}

TEST_F(SftText, AnAmbiguousPaddingTokenIsTold) {
  const auto special = sft_cases()["special_tokens"].get<std::vector<std::string>>();
  const tokenizers::SftFormat format{"default", "{{ messages }}", {}};
  const auto note = [&](const std::string& pad) {
    const tokenizers::ByteTokenizer tokenizer(special, "", pad);
    return tokenizers::SftTokenizer(&tokenizer, format).padding_note();
  };
  EXPECT_NE(note("").find("no padding token"), std::string::npos);
  EXPECT_NE(note("</s>").find("258"), std::string::npos);
  EXPECT_EQ(note("<SPECIAL_10>"), "");
}

TEST_F(SftText, SamplesWithoutALabelAreCountedWhenTheRunOpensItsData) {
  const std::string asked = R"({"messages": [{"role": "user", "content": ")";
  write("c.jsonl", asked + "a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n" + asked + std::string(40, 'a') +
                       "\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n" + "broken\n" + asked + "a\"}]}\n");
  std::vector<std::string> warnings;
  data::DataParts parts;
  parts.seq_length = 32;
  parts.asked = {8, 0, 0};
  parts.tokenizer = byte_tokenizer();
  parts.warn = [&](const std::string& line) { warnings.push_back(line); };
  const std::map<std::string, std::string> options = {{"dataset_type", "sft"},
                                                      {"split", "1,0,0"},
                                                      {"data_path", "c.jsonl"},
                                                      {"sft_tokenizer_prompt_format", "default"},
                                                      {"sft_answers_only", "true"}};
  chosen(datasets(), options, parts);
  ASSERT_EQ(warnings.size(), 3U);  // the first is about the padding token
  EXPECT_EQ(warnings[1].find("2 of 4 training samples have no label, the first of them is sample 1"), 0U)
      << warnings[1];
  EXPECT_NE(warnings[1].find("seq_length 32"), std::string::npos);
  EXPECT_EQ(warnings[2].find("1 of 4 training samples cannot be used, the first of them is sample 2: "), 0U)
      << warnings[2];
}

TEST_F(SftText, LinesArePackedWithTheirBoundaries) {
  write("c.jsonl", R"({"messages": [{"role": "user", "content": "abc"}]}

{"messages": [{"role": "user", "content": "de"}]}
{"messages": [{"role": "user", "content": "f"}]})");
  tokenizers::SftFormat format;
  format.prompt_format = "identity";
  const Sample packed(*open(format, 2), 0), next(*open(format, 2), 1);
  EXPECT_EQ(Ids(packed.tokens.begin(), packed.tokens.begin() + 6), (Ids{'a', 'b', 'c', 'd', 'e', 256}));
  EXPECT_EQ(Ids(packed.start.begin(), packed.start.begin() + 6), (Ids{0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(Ids(packed.positions.begin(), packed.positions.begin() + 6), (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(Ids(next.tokens.begin(), next.tokens.begin() + 4), (Ids{'f', 'a', 'b', 'c'}));  // lines repeat
}

TEST_F(SftText, MistakesNameTheirLine) {
  const auto refused = [&](const std::string& line, const std::vector<std::string>& parts,
                           const std::string& format_name = "identity") {
    write("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n" + line + "\n");
    tokenizers::SftFormat format;
    format.prompt_format = format_name;
    auto words = parts;
    words.emplace_back("c.jsonl:2: ");
    expect_refused([&] { Sample(*open(format), 1); }, words);
  };
  refused("{\"messages\": [}", {"is not JSON: line 1, column 15", "correct or remove the line"});
  refused("[]", {"JSON object"});
  refused("{\"text\": 1}", {"'messages'"});
  refused("{\"messages\": []}", {"no tokens"});
  refused("{\"messages\": [{\"content\": \"x\"}]}", {"message 1", "role"});
  refused("{\"messages\": [{\"role\": \"narrator\", \"content\": \"x\"}]}", {"'narrator'", "assistant"});
  refused("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
          {"message 2", "empty"});
  refused("{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
          {"message 2", "'system'"});
  write("c.jsonl", "\n \n");
  expect_refused([] { ConversationFile("c.jsonl"); }, {"c.jsonl", "empty"});
  write("c.gz", "\x1F\x8B\x08 and so on");
  expect_refused([] { ConversationFile("c.gz"); }, {"c.gz", "is compressed (gzip)", "unpack it first"});
  expect_refused([] { open({"other", {}, {}}); }, {"c.jsonl"});
  write("c.jsonl", "{}");
  expect_refused([] { open({"other", {}, {}}); }, {"'other'", "nemotron-nano-v2"});
  expect_refused([] { open({"identity", "{{ x }}", {}}); }, {"default"});
  tokenizers::SftFormat strict;
  strict.prompt_format = "default";
  write("c.jsonl", "{\"messages\": [{\"role\": \"narrator\", \"content\": \"x\"}]}");
  expect_refused([&] { Sample(*open(strict, 1, "{{ raise_exception('no ' ~ messages[0].role) }}"), 0); },
                 {"c.jsonl:1", "no narrator"});
}

class Instructions : public InOwnFolder {
 protected:
  static const LibraryJson& recorded() {
    static const auto all = LibraryJson::parse(read_file(samples_folder + "mindspeed.json"));
    return all;
  }
  static void write_stream(const std::string& name, const std::vector<Ids>& sequences) {
    indexed::IndexedDatasetBuilder builder(name, indexed::TokenType::int32);
    for (const auto& one : sequences) {
      builder.add_sequence(one);
      builder.end_document();
    }
    builder.finish();
  }
  static void write_files(const std::string& prefix, const LibraryJson& items) {
    const char* const fields[] = {"input_ids", "attention_mask", "labels"};
    for (std::size_t field = 0; field < 3; ++field) {
      std::vector<Ids> sequences;
      for (const auto& item : items) sequences.push_back(item[field].get<Ids>());
      write_stream(prefix + "_packed_" + fields[field] + "_document", sequences);
    }
  }
  /// Opens the files "d" as a run with seq_length 4 does, which is told `warnings`.
  std::unique_ptr<data::DataSplits> open_d(data::SamplesAsked asked = {6, 0, 0}) {
    data::DataParts parts;
    parts.seq_length = 4;
    parts.asked = asked;
    parts.eod = 2;
    parts.warn = [this](const std::string& line) { warnings.push_back(line); };
    return chosen(datasets(),
                  {{"dataset_type", "instruction"}, {"data_path", "d"}, {"split", "1,0,0"}, {"no_shuffle", "true"}},
                  parts);
  }
  std::vector<std::string> warnings;
};

TEST_F(Instructions, SamplesAreThoseOfMindSpeedLlm) {
  for (const auto& [name, items] : recorded()["files"].items()) write_files(name, items);
  int seen = 0;
  for (const auto& one : recorded()["samples"]) {
    const auto flag = [&](const char* name) { return one.contains(name) && one[name].get<bool>(); };
    InstructionDataset::Request request;
    request.seq_length = one["seq_length"];
    request.vocab_size = 250;
    request.pad = 9;
    request.eod = 2;
    request.rules = {flag("reset_attention_mask"), flag("reset_position_ids"), flag("neat_pack"),
                     flag("cut_max_seqlen"), one.contains("prompt_type")};
    request.order = {one["sample"].get<std::int64_t>()};
    const InstructionDataset data(std::make_shared<InstructionFiles>(one["files"].get<std::string>()), request);
    if (one.contains("prompt_type") && recorded()["files"]["single"][one["sample"].get<std::size_t>()][0].size() > 16) {
      EXPECT_NE(std::count(one["input_ids"].begin(), one["input_ids"].end(), -100), 0);  // theirs: not tokens
      expect_refused([&] { Sample(data, 0); }, {"prompt_type", "cut_max_seqlen"});
      ++seen;
      continue;
    }
    const Sample got(data, 0);
    auto ids = one["input_ids"].get<Ids>(), labels = one["labels"].get<Ids>();
    const auto length = got.tokens.size();
    ids.resize(length, 9);  // the collator pads
    labels.resize(length, -100);
    labels.erase(labels.begin());  // the model shifts them
    labels.push_back(-100);
    std::vector<float> mask;
    for (auto& label : labels) {
      mask.push_back(label == -100 ? 0.0F : 1.0F);
      if (label == -100) label = -1;
    }
    Ids positions(length), start(length, 0);
    std::iota(positions.begin(), positions.end(), 0);
    if (one.contains("position_ids")) positions = one["position_ids"].get<Ids>();
    if (one.contains("actual_seq_len")) {
      Ids bounds = {0};
      for (const auto end : one["actual_seq_len"].get<Ids>())
        if (end >= 0) bounds.push_back(end);
      start = starts_of(bounds, length);
    }
    EXPECT_EQ(got.tokens, ids) << one;
    EXPECT_EQ(got.labels, labels) << one;
    EXPECT_EQ(got.mask, mask) << one;
    EXPECT_EQ(got.positions, positions) << one;
    EXPECT_EQ(got.start, start) << one;
    ++seen;
  }
  EXPECT_EQ(seen, 5 * 23 + 4 * 9);
}

TEST_F(Instructions, TheOrderIsThatOfMindSpeedLlm) {
  for (const auto& one : recorded()["orders"]) {
    const std::int64_t first = one["first"], count = one["count"];
    const bool padded = one.contains("padded_samples");
    EXPECT_EQ(instruction_order({first, first + count}, one["asked"], one["seed"], !one.contains("no_shuffle"),
                                padded ? one["global_batch_size"].get<std::int64_t>() : 0),
              one["order"].get<std::vector<std::int64_t>>());
  }
}

TEST_F(Instructions, SplitsAreRoundedToEvenAndTheRestGoesToTheFirst) {
  const auto bounds = [](const std::string& weights, std::int64_t samples) {
    std::vector<std::int64_t> all;
    for (const auto& range : instruction_split(weights, samples)) all.push_back(range.end);
    return all;
  };
  EXPECT_EQ(bounds("1", 5), (std::vector<std::int64_t>{5, 5, 5}));
  EXPECT_EQ(bounds("969, 30, 1", 100), (std::vector<std::int64_t>{97, 100, 100}));
  EXPECT_EQ(bounds("1/1", 5), (std::vector<std::int64_t>{3, 5, 5}));  // 2.5 is 2, and one is missing
  EXPECT_EQ(bounds("1,1,1", 10), (std::vector<std::int64_t>{4, 7, 10}));
  expect_refused([&] { bounds("1,x", 5); }, {"'x'"});
  expect_refused([&] { bounds("0,0", 5); }, {"above 0"});
}

TEST_F(Instructions, FilesThatDoNotBelongTogetherAreRefused) {
  write_files("d", recorded()["files"]["single"]);
  write_stream("d_packed_labels_document", {{1, 2}});
  expect_refused([] { InstructionFiles("d"); }, {"d_packed_labels_document", "1 samples", "23"});
  expect_refused([] { InstructionFiles("e"); }, {"e_packed_input_ids_document"});
  expect_refused(
      [] {
        data::DataParts parts;
        parts.seq_length = 8;
        chosen(datasets(), {{"dataset_type", "instruction"}, {"data_path", "d"}, {"prompt_type", "other"}}, parts);
      },
      {"'other'"});
}

TEST_F(Instructions, SamplesWithoutALabelAreCountedWhenTheRunOpensItsData) {
  write_files("d", LibraryJson::parse("[[[5, 6, 7, 8], [1, 1, 1, 1], [-100, -100, 7, 8]],"
                                      " [[5, 6, 7, 8], [1, 1, 1, 1], [5, -100, -100, -100]]]"));
  open_d();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("1 of 2 training samples have no label, the first of them is sample 1"), 0U);
}

TEST_F(Instructions, WithoutALabelInAnySampleAreRefusedOnEveryRank) {
  write_files("d", LibraryJson::parse("[[[5, 6, 7, 8], [1, 1, 1, 1], [-100, -100, -100, -100]],"
                                      " [[5, 6, 7, 8], [1, 1, 1, 1], [5, -100, -100, -100]]]"));
  expect_refused([&] { open_d(); },
                 {"none of the 2 training samples has a label within seq_length 4", "trains nothing"});
  EXPECT_NO_THROW(open_d({0, 6, 0})) << "nothing is trained";
}

TEST_F(Instructions, ARunIsToldOfSamplesThatAreCut) {
  write_files("d", LibraryJson::parse("[[[5, 6, 7, 8, 9, 2], [1, 1, 1, 1, 1, 1], [-100, -100, 7, 8, 9, 2]],"
                                      " [[5, 6, 7, 8], [1, 1, 1, 1], [-100, -100, 7, 8]]]"));
  open_d();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("1 of 2 training samples are longer than seq_length 4, the longest has 6 tokens"), 0U)
      << warnings[0];
}

TEST_F(Instructions, ARecipeReadsThem) {
  write_files("d", recorded()["files"]["packed"]);
  data::DataParts parts;
  parts.seq_length = 48;
  parts.asked = {20, 2, 0};
  parts.eod = 2;
  parts.vocab_size = 256;
  const auto made = chosen(datasets(),
                           {{"dataset_type", "instruction"},
                            {"data_path", "d"},
                            {"split", "80,20,0"},
                            {"reset_attention_mask", "true"},
                            {"neat_pack", "true"}},
                           parts);
  ASSERT_TRUE(made->train && made->valid);
  EXPECT_FALSE(made->test);
  EXPECT_EQ(made->train->samples(), 21);  // three passes over seven samples
  EXPECT_EQ(made->valid->samples(), 2);
  EXPECT_GT(Sample(*made->train, 20).start.back(), 0);
}

}  // namespace
}  // namespace tessera::instructions
