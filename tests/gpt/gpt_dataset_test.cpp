#include "framework/gpt/gpt_dataset.h"

#include <fstream>
#include <numeric>

#include "framework/data/dataset_options.h"
#include "framework/data/legacy_random.h"
#include "framework/gpt/mock_source.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/tokenizers/token_origin.h"
#include "tests/chosen.h"
#include "tests/gpt/datasets.h"
#include "tests/listed.h"
#include "tests/own_folder.h"
#include "tests/tokenizers/byte_tokenizer.h"

namespace tessera::gpt {
namespace {

using Ids = std::vector<std::int32_t>;

// Sequences of given lengths; token t of sequence s is 100 s + t.
class Lengths final : public indexed::TokenSource {
 public:
  explicit Lengths(Ids lengths) : lengths_(std::move(lengths)) {}
  std::int64_t sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t s) const override { return lengths_[static_cast<std::size_t>(s)]; }
  void read(std::int64_t s, std::int64_t offset, std::span<std::int32_t> out) const override {
    for (auto& token : out) token = static_cast<std::int32_t>(100 * s + offset++);
  }
  std::string place(std::int64_t s, std::int64_t offset) const override {
    return text("lengths: document ", s, ", token ", offset);
  }

 private:
  Ids lengths_;
};

const Ids example = {5, 3, 8, 2, 6, 9, 4, 7};

struct Expected {
  std::int64_t wanted, epochs;
  Ids documents;
  std::vector<std::pair<int, int>> starts;
  std::vector<std::uint32_t> shuffle;
};

// By NumPy 1.24 and the source of Megatron-LM core_v0.12.1: the first six sequences, seq_length 4, seed 1234.
const std::vector<Expected> by_megatron = {{6,
                                            1,
                                            {2, 1, 5, 0, 4, 3},
                                            {{0, 0}, {0, 4}, {1, 0}, {2, 1}, {2, 5}, {3, 0}, {3, 4}, {4, 3}, {5, 1}},
                                            {5, 0, 3, 4, 2, 6, 1, 7}},
                                           {10,
                                            2,
                                            {2, 1, 5, 0, 4, 3, 0, 4, 3, 2, 5, 1},
                                            {{0, 0},
                                             {0, 4},
                                             {1, 0},
                                             {2, 1},
                                             {2, 5},
                                             {3, 0},
                                             {3, 4},
                                             {4, 3},
                                             {5, 1},
                                             {6, 3},
                                             {7, 2},
                                             {8, 0},
                                             {9, 2},
                                             {9, 6},
                                             {10, 2},
                                             {10, 6},
                                             {11, 1}},
                                            {1, 0, 3, 5, 2, 7, 4, 6, 11, 14, 10, 9, 15, 13, 12, 8}},
                                           {15,
                                            2,
                                            {1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3},
                                            {{0, 0},
                                             {1, 1},
                                             {1, 5},
                                             {2, 1},
                                             {2, 5},
                                             {3, 0},
                                             {3, 4},
                                             {4, 0},
                                             {5, 2},
                                             {6, 0},
                                             {7, 1},
                                             {8, 0},
                                             {8, 4},
                                             {9, 2},
                                             {9, 6},
                                             {10, 1},
                                             {11, 0}},
                                            {7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 13, 6, 10, 15, 12, 14}}};

template <class T>
std::vector<T> values(const IndexArray& array) {
  const auto all = array.values<T>();
  return {all.begin(), all.end()};
}

TEST(GptIndex, IsMegatrons) {
  for (const auto& e : by_megatron) {
    for (const int threads : {1, 2}) {
      const Lengths source(example);
      const GptIndexRequest request{{0, 6}, 4, e.wanted, 1234};
      const auto plan = plan_gpt_index(source, request);
      const auto index = build_gpt_index(source, request, plan, threads);
      EXPECT_EQ(plan.epochs, e.epochs);
      EXPECT_EQ(values<std::int32_t>(index.documents), e.documents);
      std::vector<std::pair<int, int>> starts;
      for (std::int64_t row = 0; row <= index.samples(); ++row)
        starts.emplace_back(index.start(row).document, index.start(row).offset);
      EXPECT_EQ(starts, e.starts);
      EXPECT_EQ(values<std::uint32_t>(index.shuffle), e.shuffle);
    }
  }
}

// Megatron-LM changes to int64 for more than 2^31 - 1 documents and 2^32 - 2 samples; here for a few.
TEST(GptIndex, WideTypesHoldTheSameValues) {
  const Lengths source(example);
  GptIndexRequest request{{0, 6}, 4, 10, 1234};
  const auto narrow = build_gpt_index(source, request, plan_gpt_index(source, request));
  request.most_narrow_start = 11;
  request.most_narrow_samples = 15;
  const auto plan = plan_gpt_index(source, request);
  EXPECT_EQ(plan.documents, 12);
  EXPECT_EQ(plan.samples, 16);
  const auto wide = build_gpt_index(source, request, plan);
  EXPECT_EQ(wide.starts.type(), IndexType::int64);
  EXPECT_EQ(wide.shuffle.type(), IndexType::int64);
  ASSERT_EQ(wide.samples(), narrow.samples());
  for (std::int64_t i = 0; i < wide.samples(); ++i) {
    EXPECT_EQ(wide.shuffle[i], narrow.shuffle[i]);
    EXPECT_EQ(wide.start(i).document, narrow.start(i).document);
    EXPECT_EQ(wide.start(i).offset, narrow.start(i).offset);
  }
  request.most_narrow_start = 12;
  request.most_narrow_samples = 16;
  EXPECT_EQ(plan_gpt_index(source, request).start_type, IndexType::int32);
  EXPECT_EQ(plan_gpt_index(source, request).shuffle_type, IndexType::uint32);
  request.most_narrow_start = 8;  // one sequence of the file, not of the split, is longer
  request.range = {0, 3};
  request.samples = 1;
  EXPECT_EQ(plan_gpt_index(source, request).start_type, IndexType::int64);
}

TEST(GptIndex, SaysWhenThereIsTooLittle) {
  expect_refused([] { (void)plan_gpt_index(Lengths(example), {{3, 3}, 4, 5, 1}); }, {"no token", "split"});
  expect_refused([] { (void)plan_gpt_index(Lengths(example), {{0, 1}, 64, {}, 1}); }, {"5 tokens", "64"});
  expect_refused([] { (void)plan_gpt_index(Lengths({3, -1}), {{0, 2}, 1, 1, 1}); }, {"document 1", "negative"});
}

GptDataset dataset_of(const Ids& lengths, std::int64_t seq_length, GptDataset::Request request) {
  auto source = std::make_shared<Lengths>(lengths);
  request.index.range = {0, source->sequences()};
  request.index.seq_length = seq_length;
  return {source, request};
}

TEST(NumpyShuffle, IsRepeated) {
  const std::vector<std::pair<std::uint32_t, Ids>> by_numpy = {{0, {2, 8, 4, 9, 1, 6, 7, 3, 0, 5}},
                                                               {42, {8, 1, 5, 0, 7, 2, 9, 4, 3, 6}},
                                                               {1234, {7, 2, 9, 1, 0, 8, 4, 5, 6, 3}}};
  for (const auto& [seed, order] : by_numpy) {
    Ids items(10);
    std::iota(items.begin(), items.end(), 0);
    data::NumpyRandomState(seed).shuffle(std::span(items));
    EXPECT_EQ(items, order) << "seed " << seed;
  }
}

TEST(NumpyShuffle, WideNumbersTakeTwoDraws) {  // the first in the upper half; draws for seed 1234 as NumPy gives them
  EXPECT_EQ(data::NumpyRandomState(1234).bounded(0xFFFFFFFFU), 822569775U);
  EXPECT_EQ(data::NumpyRandomState(1234).bounded(~std::uint64_t{0}), (std::uint64_t{822569775} << 32U) | 2137449171U);
}

TEST(Split, IsCutAsCheckpointCutsIt) {
  const auto bounds = [](const std::string& weights) {
    std::vector<std::int64_t> all;
    for (const auto& range : cut_split(weights, 1000)) {
      all.push_back(range ? range->begin : -1);
      all.push_back(range ? range->end : -1);
    }
    return all;
  };
  using Bounds = std::vector<std::int64_t>;
  EXPECT_EQ(bounds("949,50,1"), (Bounds{0, 949, 949, 999, 999, 1000}));
  EXPECT_EQ(bounds("969, 30, 1"), (Bounds{0, 969, 969, 999, 999, 1000}));
  EXPECT_EQ(bounds("99,1,0"), (Bounds{0, 990, 990, 1000, -1, -1}));
  EXPECT_EQ(bounds("1,1,1"), (Bounds{0, 333, 333, 667, 667, 1000}));
  EXPECT_EQ(bounds("100"), (Bounds{0, 1000, -1, -1, -1, -1}));
  EXPECT_EQ(cut_split("1,1", 3)[0]->end, 2);  // 1.5 goes to the even neighbour
  EXPECT_EQ(cut_split("1,1", 5)[0]->end, 2);
  for (const auto* words : {"", "1,2,3,4", "0,0,0", "1.2.3", "-1,2", "nan,1,1", "inf,1,1", "1,Infinity", "1e-3,1,1",
                            "1,0x10", "train", "+1"}) {
    expect_refused([&] { (void)cut_split(words, 10); }, {words, "969, 30, 1"});
    EXPECT_TRUE(broken_split(words)) << words;
  }
  EXPECT_FALSE(broken_split(std::nullopt));
  EXPECT_FALSE(broken_split("[969, 30, 1]"));
}

TEST(GptDataset, LabelsAreTheTokensThatFollow) {
  const auto dataset = dataset_of(example, 4, {});
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read(i, batch.sample(0));
    const auto& index = dataset.index();
    const auto at = index.shuffle[i];
    Ids all;  // joined documents, the plain way
    for (const auto d : values<std::int32_t>(index.documents))
      for (int t = 0; t < example[static_cast<std::size_t>(d)]; ++t) all.push_back(100 * d + t);
    const auto first = all.begin() + 4 * at;
    EXPECT_EQ(listed(batch.tokens), Ids(first, first + 4));
    EXPECT_EQ(listed(batch.labels), Ids(first + 1, first + 5));
    EXPECT_EQ(listed(batch.loss_mask), std::vector<float>(4, 1));
  }
}

TEST(GptDataset, ShortSamplesArePadded) {
  GptDataset::Request request;
  request.index.drop_last = false;
  const auto dataset = dataset_of({7}, 4, request);
  ASSERT_EQ(dataset.samples(), 2);
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < 2; ++i) {
    dataset.read(i, batch.sample(0));
    if (batch.tokens[0] == 0) continue;
    EXPECT_EQ(listed(batch.tokens), (Ids{4, 5, 6, 0}));
    EXPECT_EQ(listed(batch.labels), (Ids{5, 6, -1, -1}));
    EXPECT_EQ(listed(batch.loss_mask), (std::vector<float>{1, 1, 0, 0}));
  }
}

TEST(GptDataset, ATokenBeyondTheVocabularyIsNamedWithItsPlace) {
  GptDataset::Request request;
  request.vocab_size = 103;
  const auto dataset = dataset_of({3, 6}, 4, request);
  Batch batch(1, 4);
  expect_refused(
      [&] {
        for (std::int64_t i = 0; i < dataset.samples(); ++i) dataset.read(i, batch.sample(0));
      },
      {"lengths: document 1, token 3", "103", "vocab"});
  request.vocab_size = 106;
  const auto good = dataset_of({3, 6}, 4, request);
  for (std::int64_t i = 0; i < good.samples(); ++i) EXPECT_NO_THROW(good.read(i, batch.sample(0)));
}

TEST(GptDataset, DocumentsAreKeptApartOnlyWithAnEod) {
  GptDataset::Request request;
  request.options.reset_attention_mask = true;
  expect_refused([&] { (void)dataset_of(example, 4, request); }, {"reset_attention_mask", "tokenizer_type"});
}

// Pad tokens of the text are padding too: Megatron-LM compares the tokens.
TEST(GptDataset, PadTokensAreMaskedWhereverTheyAre) {
  GptDataset::Request request;
  request.index.drop_last = false;
  request.pad = 2;
  const auto dataset = dataset_of({7}, 4, request);
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read(i, batch.sample(0));
    const bool first = batch.tokens[1] == 1;
    EXPECT_EQ(listed(batch.tokens), first ? (Ids{0, 1, 0, 3}) : (Ids{4, 5, 6, 0}));
    EXPECT_EQ(listed(batch.labels), first ? (Ids{1, -1, 3, 4}) : (Ids{5, 6, -1, -1}));
    EXPECT_EQ(listed(batch.loss_mask), first ? (std::vector<float>{1, 0, 1, 1}) : (std::vector<float>{1, 1, 0, 0}));
  }
}

TEST(GptDataset, PaddingByTheEndOfADocumentEndsDocuments) {
  GptDataset::Request request;
  request.index.drop_last = false;
  request.pad = 105;  // no token of the text
  request.eod = 105;
  request.options.reset_position_ids = request.options.eod_mask_loss = true;
  const auto dataset = dataset_of({7}, 4, request);
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read(i, batch.sample(0));
    if (batch.tokens[0] != 4) continue;
    EXPECT_EQ(listed(batch.tokens), (Ids{4, 5, 6, 0}));
    EXPECT_EQ(listed(batch.positions), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(listed(batch.loss_mask), (std::vector<float>{1, 1, 0, 0}));
  }
}

TEST(GptDataset, DocumentsOfTheFileAreKeptApart) {
  GptDataset::Request request;
  request.options.dataloader_inter_document_masking = true;
  const auto dataset = dataset_of({3, 2, 9, 1, 4, 6}, 5, request);
  Batch batch(1, 5);
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read(i, batch.sample(0));
    std::int32_t start = 0;
    for (std::size_t t = 0; t < 5; ++t) {
      if (t > 0 && batch.tokens[t] / 100 != batch.tokens[t - 1] / 100) start = static_cast<std::int32_t>(t);
      EXPECT_EQ(batch.document_start[t], start);
      EXPECT_EQ(batch.positions[t], static_cast<std::int32_t>(t) - start);
    }
  }
}

TEST(GptDataset, WithoutAMaskOfTheDatasetAttentionIsCausal) {
  GptDataset::Request request;
  request.eod = 104;
  request.options.reset_attention_mask = request.options.reset_position_ids = true;
  request.options.create_attention_mask_in_dataloader = false;
  const auto dataset = dataset_of({3, 9, 9}, 5, request);
  Batch batch(1, 5);
  bool restarted = false;
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.read(i, batch.sample(0));
    EXPECT_EQ(listed(batch.document_start), Ids(5, 0));
    restarted = restarted || listed(batch.positions) != Ids{0, 1, 2, 3, 4};
  }
  EXPECT_TRUE(restarted);
}

TEST(GptDataset, AnIndexOfOtherDataIsRefused) {
  auto source = std::make_shared<Lengths>(Ids{5, 3});
  GptDataset::Request request;
  request.index = {{0, 2}, 3, {}, 1};
  auto index = build_gpt_index(*source, request.index, plan_gpt_index(*source, request.index));
  index.documents.values<std::int32_t>()[0] = 7;
  const GptDataset dataset(source, request, std::move(index));
  Batch batch(1, 3);
  expect_refused(
      [&] {
        for (std::int64_t i = 0; i < dataset.samples(); ++i) dataset.read(i, batch.sample(0));
      },
      {"sequence 7", "damaged", "cache"});
}

class Files : public InOwnFolder {
 protected:
  Files() {
    indexed::IndexedDatasetBuilder builder("x", indexed::TokenType::uint16);
    for (std::int32_t d = 0; d < 100; ++d) {
      builder.add_sequence(Ids(static_cast<std::size_t>(5 + d % 7), d));
      builder.end_document();
    }
    builder.finish();
  }
  static std::unique_ptr<data::DataSplits> make(std::map<std::string, std::string> options,
                                                data::SamplesAsked asked = {10, 2, 0}) {
    return chosen(datasets(), options, data::DataParts{4, asked, 1, 100, {}});
  }
};

TEST_F(Files, OfAnotherTokenizerAreTold) {
  const tokenizers::ByteTokenizer own({"<unk>", "<s>", "</s>"}, "");
  const tokenizers::OtherBytes other;
  tokenizers::write_origin("x", other);
  const auto warned = [](const tokenizers::Tokenizer& tokenizer) {
    std::vector<std::string> warnings;
    data::DataParts parts{4, {10, 2, 0}, 1, 100, {}};
    parts.tokenizer = &tokenizer;
    parts.warn = [&](const std::string& line) { warnings.push_back(line); };
    chosen(datasets(), {{"dataset_type", "gpt"}, {"data_path", "0.3 x 0.7 x"}, {"split", "8,2,0"}}, parts);
    return warnings;
  };
  const auto told = warned(own);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].find("x.bin was made with another tokenizer than the run's"), 0U) << told[0];
  EXPECT_EQ(warned(other), std::vector<std::string>());
}

TEST_F(Files, AreSplitByWeights) {
  const auto splits = make({{"data_path", "x"}, {"split", "8,1,1"}}, {10, 2, 2});
  EXPECT_EQ(splits->train->seq_length(), 4);
  EXPECT_GE(splits->train->samples(), 10);
  EXPECT_GE(splits->valid->samples(), 2);
  EXPECT_GE(splits->test->samples(), 2);
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < splits->valid->samples(); ++i) {
    splits->valid->read(i, batch.sample(0));
    for (const auto token : batch.tokens) EXPECT_TRUE(token >= 80 && token < 90);
  }
}

TEST_F(Files, WhatIsNotAskedForIsNotMade) {
  EXPECT_EQ(make({{"data_path", "x"}})->test, nullptr);
  EXPECT_EQ(make({{"data_path", "x"}}, {0, 2, 0})->train, nullptr);
  const auto whole = make({{"train_data_path", "x"}, {"valid_data_path", "x"}}, {data::one_epoch, 1, 1});
  EXPECT_EQ(whole->train->samples(), whole->valid->samples());
  EXPECT_EQ(whole->test, nullptr);
}

TEST_F(Files, MistakesAreNamed) {
  expect_refused([] { (void)make({}); }, {"data_path", "preprocess"});
  expect_refused([] { (void)make({{"data_path", "absent"}}); }, {"absent.idx"});
  expect_refused([] { (void)make({{"data_path", "y"}}); }, {"y.idx", "prefixes x"});
  expect_refused([] { (void)make({{"data_path", "0.3 x 0 x"}}); }, {"data_path", "weight of 'x' is 0", "above 0"});
  expect_refused([] { (void)make({{"data_path", "x"}, {"train_data_path", "x"}}); }, {"mutually exclusive"});
  expect_refused([] { (void)make({{"split", "1,1,1"}, {"train_data_path", "x"}}); }, {"split"});
  expect_refused([] { (void)make({{"data_path", "x"}, {"split", "1000,1,0"}}); }, {"x: the valid split", "no token"});
}

TEST(Mock, CountsAndFitsAnyVocabulary) {
  for (const std::int64_t vocabulary : {2, 50, 5000}) {
    const auto splits =
        chosen(datasets(), {{"dataset_type", "mock"}}, data::DataParts{1024, {20, 4, 4}, 7, vocabulary, {}});
    Batch batch(1, 1024);
    std::int64_t follows = 0, all = 0;
    for (std::int64_t i = 0; i < 20; ++i) {
      splits->train->read(i, batch.sample(0));
      for (std::size_t t = 0; t < 1024; ++t) {
        ASSERT_TRUE(batch.labels[t] >= 0 && batch.labels[t] < vocabulary);
        follows += batch.labels[t] == batch.tokens[t] + 1 ? 1 : 0;
        ++all;
      }
    }
    if (vocabulary == 5000) {
      EXPECT_GT(follows, all * 9 / 10);
    }
  }
  expect_refused(
      [] {
        (void)chosen(datasets(), {{"dataset_type", "mock"}}, data::DataParts{16, {20, 4, 4}, 7, 1, {}});
      },
      {"mock", "at least 2"});
}

class MockInFolder : public InOwnFolder {
 protected:
  /// Tokens of the first 40 training samples, and how many samples there are.
  static std::pair<Ids, std::int64_t> of(const std::string& documents, const std::string& cache = "") {
    std::map<std::string, std::string> options = {{"dataset_type", "mock"}, {"mock_documents", documents}};
    if (!cache.empty()) options.insert({"data_cache_path", cache});
    const auto splits = chosen(datasets(), options, data::DataParts{16, {40, 4, 4}, 7, 50, {}});
    Batch batch(1, 16);
    Ids tokens;
    for (std::int64_t i = 0; i < 40; ++i) {
      splits->train->read(i, batch.sample(0));
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
    }
    return {tokens, splits->train->samples()};
  }
};

TEST_F(MockInFolder, ASmallerNumberOfDocumentsHasAnIndexOfItsOwn) {
  const auto thirty = of("30"), sixty = of("60");
  EXPECT_NE(thirty.first, sixty.first);
  EXPECT_LT(3 * thirty.second, 2 * sixty.second);
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(of("30", "cache"), thirty);
    EXPECT_EQ(of("60", "cache"), sixty);
  }
  int descriptions = 0;
  for (const auto& file : std::filesystem::directory_iterator("cache"))
    descriptions += file.path().string().ends_with("description.txt") ? 1 : 0;
  EXPECT_EQ(descriptions, 6) << "of three splits each";
  EXPECT_THROW(of("2"), ConfigError);
}

}  // namespace
}  // namespace tessera::gpt
