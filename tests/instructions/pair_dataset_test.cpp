// Preference pairs as token files.
#include "framework/instructions/pair_dataset.h"

#include <array>
#include <numeric>
#include <utility>

#include "framework/data/dataset.h"
#include "framework/instructions/catalog.h"
#include "framework/instructions/instruction_dataset.h"
#include "framework/tokenizers/token_origin.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::instructions {
namespace {

using Row = std::vector<std::int32_t>;

/// The two rows of a pair.
struct PairRows {
  PairRows(const data::Dataset& data, std::int64_t index) : length(static_cast<std::size_t>(data.seq_length())) {
    tokens.resize(2 * length);
    labels = positions = start = tokens;
    mask.resize(2 * length);
    data.read(index, {.samples = 2,
                      .seq_length = data.seq_length(),
                      .tokens = tokens,
                      .labels = labels,
                      .loss_mask = mask,
                      .positions = positions,
                      .document_start = start});
  }
  static Row part(const Row& all, std::size_t row, std::size_t length) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * length);
    return {begin, begin + static_cast<std::ptrdiff_t>(length)};
  }
  Row row(std::size_t which) const { return part(tokens, which, length); }
  Row labels_of(std::size_t which) const { return part(labels, which, length); }
  std::size_t length;
  Row tokens, labels, positions, start;
  std::vector<float> mask;
};

class Pairs : public InOwnFolder {
 protected:
  static void write_stream(const std::string& name, const std::vector<Row>& sequences) {
    indexed::IndexedDatasetBuilder builder(name, indexed::TokenType::int32);
    for (const auto& one : sequences) {
      builder.add_sequence(one);
      builder.end_document();
    }
    builder.finish();
  }
  /// A pair: prompt, chosen answer, rejected answer.
  using Pair = std::array<Row, 3>;
  static void write_pairs(const std::string& prefix, const std::vector<Pair>& pairs) {
    for (const auto& [which, answer] : {std::pair("chosen", 1U), std::pair("rejected", 2U)}) {
      std::vector<Row> ids, labels;
      for (const auto& pair : pairs) {
        ids.push_back(pair[0]);
        ids.back().insert(ids.back().end(), pair[answer].begin(), pair[answer].end());
        labels.emplace_back(pair[0].size(), -100);
        labels.back().insert(labels.back().end(), pair[answer].begin(), pair[answer].end());
      }
      write_stream(text(prefix, "_packed_", which, "_input_ids_document"), ids);
      write_stream(text(prefix, "_packed_", which, "_labels_document"), labels);
    }
  }
  static PairDataset open(std::int64_t seq_length, std::int64_t vocab_size = 100) {
    auto files = std::make_shared<PairFiles>("d");
    PairDataset::Request request{{}, seq_length, vocab_size, 9};
    for (std::int64_t i = 0; i < files->samples(); ++i) request.order.push_back(i);
    return PairDataset(std::move(files), std::move(request));
  }
  /// Opens the pairs "d" as a run does, which is told `warnings`.
  std::unique_ptr<data::DataSplits> of_recipe(const tokenizers::Tokenizer* tokenizer = nullptr) {
    warnings.clear();
    data::DataParts parts;
    parts.asked = {8, 0, 0};
    parts.tokenizer = tokenizer;
    parts.warn = [this](const std::string& line) { warnings.push_back(line); };
    parts.seq_length = 8;
    parts.eod = 9;
    parts.vocab_size = 100;
    auto registry = data::dataset_registry();
    register_datasets(registry);
    return chosen(registry,
                  {{"dataset_type", "instruction"},
                   {"data_path", "d"},
                   {"split", "1,0,0"},
                   {"no_shuffle", "true"},
                   {"is_pairwise_dataset", "true"}},
                  parts);
  }
  std::vector<std::string> warnings;
};

TEST_F(Pairs, RowsAreThePromptWithEachAnswer) {
  // The end token 9 of an answer is also the padding: it is learned, the padding is not.
  write_pairs("d", {{Row{1, 2, 3}, Row{4, 9}, Row{5, 6, 7, 9}}, {Row{}, Row{8}, Row{7, 7}}});
  const auto data = open(8);
  EXPECT_EQ(data.rows_per_sample(), 2);
  const PairRows one(data, 0);
  EXPECT_EQ(one.row(0), (Row{1, 2, 3, 4, 9, 9, 9, 9}));
  EXPECT_EQ(one.labels_of(0), (Row{-1, -1, 4, 9, -1, -1, -1, -1}));
  EXPECT_EQ(one.row(1), (Row{1, 2, 3, 5, 6, 7, 9, 9}));
  EXPECT_EQ(one.labels_of(1), (Row{-1, -1, 5, 6, 7, 9, -1, -1}));
  for (std::size_t i = 0; i < one.mask.size(); ++i) {
    EXPECT_EQ(one.mask[i], one.labels[i] == -1 ? 0.0F : 1.0F);
    EXPECT_EQ(one.positions[i], static_cast<std::int32_t>(i % 8));
    EXPECT_EQ(one.start[i], 0);
  }
  EXPECT_EQ(PairRows(data, 1).labels_of(1), (Row{7, -1, -1, -1, -1, -1, -1, -1})) << "an empty prompt";
}

// Prompt and answers share seq_length; the longer answer decides for both. The expected rows are computed by hand from
// the formula of cut_lengths.
TEST_F(Pairs, AreCutTogether) {
  const auto tokens = [](std::int32_t first, std::size_t count) {
    Row made(count);
    std::iota(made.begin(), made.end(), first);
    return made;
  };
  write_pairs("d", {{tokens(0, 6), tokens(20, 2), tokens(40, 3)},      // 9: the prompt is cut
                    {tokens(0, 3), tokens(20, 9), tokens(40, 2)},      // 12: the answer is cut
                    {tokens(0, 10), tokens(20, 2), tokens(40, 10)}});  // 20: both in proportion
  const auto data = open(8);
  const PairRows prompt_cut(data, 0), answer_cut(data, 1), both(data, 2);
  EXPECT_EQ(prompt_cut.row(0), (Row{0, 1, 2, 3, 4, 20, 21, 9}));
  EXPECT_EQ(prompt_cut.row(1), (Row{0, 1, 2, 3, 4, 40, 41, 42}));
  EXPECT_EQ(answer_cut.row(0), (Row{0, 1, 2, 20, 21, 22, 23, 24}));
  EXPECT_EQ(answer_cut.row(1), (Row{0, 1, 2, 40, 41, 9, 9, 9}));
  EXPECT_EQ(both.row(0), (Row{0, 1, 2, 3, 20, 21, 9, 9}));
  EXPECT_EQ(both.row(1), (Row{0, 1, 2, 3, 40, 41, 42, 43}));
  EXPECT_EQ(both.labels_of(1), (Row{-1, -1, -1, 40, 41, 42, 43, -1}));
}

TEST_F(Pairs, ThatCannotBeUsedAreNamed) {
  write_pairs("d", {{Row{1, 2}, Row{}, Row{3}}, {Row{1, 2}, Row{3}, Row{100}}});
  const auto data = open(8);
  expect_refused([&] { PairRows(data, 0); }, {"d_packed_chosen_labels", "no label"});
  expect_refused([&] { PairRows(data, 1); }, {"d_packed_rejected_input_ids", "token 100", "vocabulary has 100"});
  write_stream("d_packed_rejected_input_ids_document", {{5, 2, 3}, {1, 2, 8}});
  write_stream("d_packed_rejected_labels_document", {{-100, -100, 3}, {-100, -100, 8}});
  write_stream("d_packed_chosen_input_ids_document", {{1, 2, 3}, {1, 2, 8}});
  write_stream("d_packed_chosen_labels_document", {{-100, -100, 3}, {-100, -100, 8}});
  const auto other = open(8);
  expect_refused([&] { PairRows(other, 0); }, {"d_packed_rejected", "another prompt"});
  write_stream("d_packed_rejected_labels_document", {{-100, -100, 3}, {-100, 8}});
  expect_refused([&] { open(8); }, {"d_packed_rejected_labels", "sample 1", "2 numbers"});
  write_stream("d_packed_rejected_labels_document", {{-100, -100, 3}});
  expect_refused([&] { open(8); }, {"d_packed_rejected_labels", "1 samples", "2"});
  for (const auto* key : {"input_ids", "attention_mask", "labels"})
    write_stream(text("e_packed_", key, "_document"), {{1}});
  expect_refused([&] { PairFiles("e"); }, {"e_packed_chosen_input_ids", "AlpacaStylePairwiseHandler"});
  expect_refused([&] { InstructionFiles("d"); }, {"d_packed_input_ids", "is_pairwise_dataset"});
}

TEST_F(Pairs, ARunIsToldOfThoseThatTeachNothing) {
  write_pairs("d", {{Row{1, 2}, Row{3, 4}, Row{3, 4}},
                    {Row{1, 2}, Row{3, 4}, Row{3, 5}},
                    {Row{1, 2}, Row{3, 4}, Row{}},
                    {Row{1, 2, 3, 4, 5, 6, 7, 8}, Row{3, 4}, Row{5, 6}}});
  const auto splits = of_recipe();
  ASSERT_EQ(splits->train->samples(), 8);
  ASSERT_EQ(splits->train->rows_per_sample(), 2);
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_EQ(warnings[0].find("1 of 4 training pairs have an answer without a label, the first of them is sample 2"),
            0U);
  EXPECT_EQ(warnings[1].find("1 of 4 training pairs have equal chosen and rejected answers, the first of them is "
                             "sample 0"),
            0U);
  EXPECT_EQ(warnings[2].find("1 of 4 training pairs are longer than seq_length 8, the longest has 10 tokens"), 0U);
}

TEST_F(Pairs, ARunIsToldOfThoseThatItCannotUseBeforeItMeetsThem) {
  write_pairs("d", {{Row{1, 2}, Row{3, 4}, Row{3, 5}}, {Row{1, 2}, Row{}, Row{3, 5}}, {Row{1, 2}, Row{}, Row{3}}});
  of_recipe();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("2 of 3 training samples cannot be used, the first of them is sample 1: "), 0U);
  EXPECT_NE(warnings[0].find("the chosen answer has no label"), std::string::npos) << warnings[0];
}

TEST_F(Pairs, ARunIsToldThatTheyWereMadeWithAnotherTokenizer) {
  write_pairs("d", {{Row{1, 2}, Row{3, 4}, Row{3, 5}}});
  const tokenizers::ByteTokenizer own({"<unk>", "<s>", "</s>"}, "");
  const tokenizers::OtherBytes other;
  tokenizers::write_origin("d_packed_chosen_input_ids_document", other);
  for (const tokenizers::Tokenizer* one :
       {static_cast<const tokenizers::Tokenizer*>(&own), static_cast<const tokenizers::Tokenizer*>(&other)}) {
    of_recipe(one);
    ASSERT_EQ(warnings.size(), one == &own ? 1U : 0U);
    if (one == &own) {
      EXPECT_EQ(warnings[0].find("d_packed_chosen_input_ids_document.bin was made with another tokenizer"), 0U);
    }
  }
}

}  // namespace
}  // namespace tessera::instructions
