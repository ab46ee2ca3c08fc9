#include "framework/gpt/blend.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/files/python_json.h"
#include "framework/gpt/blended_dataset.h"
#include "framework/gpt/gpt_data_options.h"
#include "framework/gpt/gpt_splits.h"
#include "framework/gpt/md5.h"
#include "framework/indexed/indexed_dataset.h"
#include "tests/chosen.h"
#include "tests/gpt/datasets.h"
#include "tests/own_folder.h"

namespace tessera::gpt {
namespace {

using Words = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

TEST(Md5, IsThatOfTheRfc) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
  for (const auto& [length, sum] : std::map<std::size_t, std::string>{{55, "ef1772b6dff9a122358552954ad0df65"},
                                                                      {56, "3b0c8ac703f828b04c6c197006d17218"},
                                                                      {64, "014842d480b571495a4a0363793f7367"}})
    EXPECT_EQ(md5_hex(std::string(length, 'a')), sum) << length;
}

TEST(PythonJson, IsPythons) {  // json.dumps(..., indent=4) of Python 3.11
  const tessera::Json json = {{"a", {"\xC3\xA9\x7F\n\t\b\f\r\x01\xF0\x9F\x98\x80\"\\/", "\xFF\x80x"}},
                              {"b", tessera::Json::array()},
                              {"d", {1, nullptr, 0.1, 1e-05, 1.0, 0.9500000000000001}}};
  EXPECT_EQ(
      files::python_json(json),
      "{\n    \"a\": [\n        \"\\u00e9\\u007f\\n\\t\\b\\f\\r\\u0001\\ud83d\\ude00\\\"\\\\/\",\n"
      "        \"\\udcff\\udc80x\"\n    ],\n    \"b\": [],\n    \"d\": [\n        1,\n        null,\n        0.1,\n"
      "        1e-05,\n        1.0,\n        0.9500000000000001\n    ]\n}");
}

TEST(PythonJson, WritesFloatsAsPythonsRepr) {  // of Python 3.11
  const std::vector<std::pair<double, std::string>> all = {{0.0, "0.0"},
                                                           {-0.0, "-0.0"},
                                                           {0.0001, "0.0001"},
                                                           {0.00001, "1e-05"},
                                                           {1.5e-7, "1.5e-07"},
                                                           {5e-324, "5e-324"},
                                                           {0.1 + 0.2, "0.30000000000000004"},
                                                           {5e15, "5000000000000000.0"},
                                                           {9007199254740993.0, "9007199254740992.0"},
                                                           {1e16, "1e+16"},
                                                           {1.25e22, "1.25e+22"},
                                                           {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [value, words] : all) {
    EXPECT_EQ(files::python_float(value), words);
    EXPECT_EQ(files::python_json(tessera::Json(value)), words);
  }
  EXPECT_EQ(files::python_json(tessera::Json(std::numeric_limits<double>::quiet_NaN())), "NaN");
  EXPECT_EQ(files::python_json(tessera::Json(-std::numeric_limits<double>::infinity())), "-Infinity");
}

TEST(Blend, IsReadAsMegatronReadsIt) {
  const auto read = [](const Words& words) { return *read_blend(words, "data_path"); };
  EXPECT_FALSE(read_blend({}, "data_path"));
  EXPECT_TRUE(read({"a"}).is_plain());
  EXPECT_EQ(read({"30", "a", "7e1", " b "}).prefixes, (Words{"a", "b"}));
  EXPECT_EQ(*read({"30", "a", "1_000", "b"}).weights, (std::vector<double>{30, 1000}));
  EXPECT_EQ(read({"a", "b"}).prefixes, (Words{"a", "b"}));
  EXPECT_EQ(read({"0.5", "a", "0.5"}).prefixes, (Words{"0.5", "a", "0.5"}));  // odd: no weights
  EXPECT_EQ(read({"0.3", "a", "b", "c"}).prefixes, (Words{"0.3", "a", "b", "c"}));
  EXPECT_FALSE(read({"0x10", "a"}).weights);
  expect_refused([&] { read({"a", "b", "0.3", "c"}); }, {"data_path: 'a'", "weight"});
  for (const auto* weight : {"0", "-1", "nan", "inf", "1e999"})
    expect_refused([&] { read({weight, "corpus", "1", "b"}); }, {"'corpus'", weight, "above 0"});
  expect_refused([&] { read({"1e-300", "a", "1e300", "b"}); }, {"too far apart"});
  expect_refused([&] { read(Words(32767, "a")); }, {"32767", "32766", "merge"});
}

TEST(Blend, WeightsAreNormalizedWithNumPysRounding) {  // numpy 2.4: the second of (w / w.sum()), w = 1 / (i + 3)
  const std::map<std::size_t, double> by_numpy = {
      {7, 0x1.8142e2b923b2bp-3}, {8, 0x1.664cebbd2c931p-3}, {20, 0x1.d36805cfaef23p-4}, {300, 0x1.ab9ec12baa5b1p-5}};
  for (const auto& [count, second] : by_numpy) {
    std::vector<double> weights;
    for (std::size_t i = 0; i < count; ++i) weights.push_back(1 / static_cast<double>(i + 3));
    EXPECT_EQ(normalized(weights)[1], second) << count;
  }
}

Ids parts_of(const BlendIndex& index) {
  Ids all;
  for (std::int64_t i = 0; i < index.part.size(); ++i) all.push_back(static_cast<std::int32_t>(index.part[i]));
  return all;
}

TEST(BlendIndex, TakesThePartThatIsMostBehind) {  // golden values of Megatron-LM's helper
  EXPECT_EQ(parts_of(build_blend_index(std::vector<double>{0.3, 0.7}, 12)), (Ids{1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(parts_of(build_blend_index(std::vector<double>{0.25, 0.25, 0.5}, 12)),
            (Ids{2, 0, 1, 2, 0, 2, 1, 2, 0, 2, 1, 2}));
}

TEST(BlendIndex, ExhaustsEveryPart) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> lengths(1 + random() % 7);
    for (auto& length : lengths) length = 1 + random() % 40;
    const auto index = build_exhaustive_blend_index(lengths);
    std::vector<std::int64_t> used(lengths.size());
    for (std::int64_t i = 0; i < index.part.size(); ++i)
      ASSERT_EQ(index.part_sample[i], used[static_cast<std::size_t>(index.part[i])]++) << "seed " << seed;
    ASSERT_EQ(used, lengths) << "seed " << seed;
  }
}

class Corpora : public InOwnFolder {
 protected:
  Corpora() {
    for (const auto* name : {"x", "y", "z"}) {
      indexed::IndexedDatasetBuilder builder(name, indexed::TokenType::uint16);
      for (std::int32_t d = 0; d < 60; ++d) {
        builder.add_sequence(Ids(static_cast<std::size_t>(5 + d % 7), 20 * (name[0] - 'x') + d % 20));
        builder.end_document();
      }
      builder.finish();
    }
  }
  static std::unique_ptr<data::DataSplits> make(std::map<std::string, std::string> options,
                                                data::SamplesAsked asked = {40, 2, 0}) {
    data::DataParts parts{4, asked, 1, 100, {}};
    return chosen(datasets(), options, parts);
  }
  /// All tokens of the first samples.
  static Ids read(const data::Dataset& dataset) {
    Batch batch(1, 4);
    Ids all;
    for (std::int64_t i = 0; i < dataset.samples(); ++i) {
      dataset.read(i, batch.sample(0));
      all.insert(all.end(), batch.tokens.begin(), batch.tokens.end());
    }
    return all;
  }
};

TEST(DataPathOption, IsReadAsItWasWritten) {
  for (const std::vector<std::string>& parts : std::vector<std::vector<std::string>>{
           {}, {"a"}, {"my data/corpus"}, {"tab\there"}, {"0.3", "a b", "0.7", "c"}}) {
    DataPath given, again;
    given.parts = parts;
    ASSERT_TRUE(DataPath::Option::read(DataPath::Option::write(given), again));
    EXPECT_EQ(again.parts, parts);
  }
}

TEST_F(Corpora, AreBlendedFromFilesOfWordsToo) {
  const auto given = make({{"data_path", "0.3 x 0.7 y"}});
  std::ofstream("words.txt") << "0.3 x\n0.7\ty\n";
  EXPECT_EQ(read(*given->train), read(*make({{"data_args_path", "words.txt"}})->train));
  std::ofstream("marked.txt") << "\xEF\xBB\xBF"
                              << "0.3 x 0.7 y";  // as Windows writes it
  EXPECT_EQ(read(*given->train), read(*make({{"data_args_path", "marked.txt"}})->train));
  std::ofstream("splits.json") << R"({"train": [0.3, "x", 0.7, "y"], "valid": "z", "test": null})";
  const auto apart = make({{"per_split_data_args_path", "splits.json"}});
  const auto same = make({{"train_data_path", "0.3 x 0.7 y"}, {"valid_data_path", "z"}});
  EXPECT_EQ(read(*apart->train), read(*same->train));
  EXPECT_EQ(read(*apart->valid), read(*same->valid));
  EXPECT_EQ(apart->train->samples(), 40);
  const auto& blend = dynamic_cast<const BlendedDataset&>(*apart->train);
  std::int64_t of_first = 0;
  for (std::int64_t i = 0; i < 40; ++i) of_first += blend.part_of(i) == 0 ? 1 : 0;
  EXPECT_EQ(of_first, 12);
}

TEST_F(Corpora, InABlendTellWhereTokensComeFrom) {
  const auto made = make({{"data_path", "0.3 x 0.7 y"}});
  const auto& blend = dynamic_cast<const BlendedDataset&>(*made->train);
  Batch batch(1, 4);
  for (std::int64_t i = 0; i < blend.samples(); ++i) {
    blend.read(i, batch.sample(0));
    const auto origins = blend.origins(i);
    ASSERT_FALSE(origins.empty());
    const std::string file = blend.part_of(i) == 0 ? "x" : "y";
    std::int64_t tokens = 0;
    for (const auto& origin : origins) {
      EXPECT_EQ(origin.place.rfind(file + ".bin", 0), 0U) << origin.place;
      EXPECT_EQ(batch.tokens[static_cast<std::size_t>(origin.first)], 20 * (file[0] - 'x') + origin.document % 20);
      tokens += origin.count;
    }
    EXPECT_EQ(tokens, 4);
  }
}

// A pipeline stage without embedding and loss opens no data if this holds.
TEST_F(Corpora, AreOneDocumentInEachSampleUnlessAnOptionKeepsDocumentsApart) {
  for (const auto* path : {"x", "0.3 x 0.7 y"}) {
    EXPECT_TRUE(make({{"data_path", path}})->train->one_document_each());
    EXPECT_FALSE(
        make({{"data_path", path}, {"dataloader_inter_document_masking", "true"}})->train->one_document_each());
  }
}

TEST_F(Corpora, OfValidationAreSetsOfTheirOwn) {
  const std::map<std::string, std::string> usual = {{"train_data_path", "x"}, {"valid_data_path", "y z"}};
  const auto with = [&](std::map<std::string, std::string> more, data::SamplesAsked asked = {4, 3, 0}) {
    more.insert(usual.begin(), usual.end());
    return make(more, asked);
  };
  EXPECT_TRUE(with({})->valid_sets.empty());
  for (const auto asked : {std::int64_t{3}, data::one_epoch}) {
    const auto sets = with({{"multiple_validation_sets", "true"}}, {4, asked, 0});
    EXPECT_EQ(sets->valid, nullptr);
    ASSERT_EQ(sets->valid_sets.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto alone = make({{"train_data_path", "x"}, {"valid_data_path", i == 0 ? "y" : "z"}}, {4, asked, 0});
      EXPECT_EQ(sets->valid_sets[i].name, std::to_string(i));
      EXPECT_EQ(read(*sets->valid_sets[i].data), read(*alone->valid));
    }
  }
  // One blend that `split` divides has one set.
  EXPECT_EQ(make({{"data_path", "x y"}, {"split", "8,2,0"}, {"multiple_validation_sets", "true"}})->valid_sets.size(),
            1U);
  expect_refused(
      [&] {
        make({{"train_data_path", "x"}, {"valid_data_path", "1 y 1 z"}, {"multiple_validation_sets", "true"}});
      },
      {"valid_data_path", "has weights"});
}

TEST_F(Corpora, OfValidationHaveTheNamesThatTheUserGives) {
  const auto named = [](Words names) {
    GptSplits::Options options;
    options.multiple_validation_sets = true;
    options.validation_set_names = std::move(names);
    const data::SamplesAsked asked{0, 3, 0};
    const GptSplits splits(GptSplits::with(std::move(options), data::DataParts{4, asked, 1, 100, {}}));
    return splits.of_run({}, "", {std::nullopt, read_blend({"y", "z"}, "valid_data_path"), std::nullopt}, asked);
  };
  EXPECT_EQ(named({"code", "prose"}).valid_sets[1].name, "prose");
  expect_refused([&] { named({"code"}); }, {"validation_set_names", "1 names for 2 validation sets"});
  GptDataOptions options;
  options.multiple_validation_sets = true;
  for (const auto& [name, said] : std::map<std::string, std::string>{{"code", "twice"},
                                                                     {"a \"b\"", "is not 1 to 64"},
                                                                     {"", "is not 1 to 64"},
                                                                     {std::string(65, 'x'), "is not"}}) {
    options.validation_set_names = {"code", name};
    expect_refused([&] { options::refuse("data", options::broken_rules(options)); }, {"validation_set_names", said});
  }
  options.validation_set_names = {"code", "prose"};
  EXPECT_TRUE(options::broken_rules(options).empty());
  options.multiple_validation_sets = false;
  expect_refused([&] { options::refuse("data", options::broken_rules(options)); },
                 {"multiple_validation_sets is false"});
}

TEST_F(Corpora, DoNotDependOnThreadsNorOnHowTheyAreRead) {
  const std::string words = "1 x 1 y 2 z 1 x";
  const auto one = read(*make({{"data_path", words}, {"data_cache_path", "one"}})->train);
  const auto many = make({{"data_path", words},
                          {"data_cache_path", "many"},
                          {"num_dataset_builder_threads", "4"},
                          {"mmap_bin_files", "false"}});
  EXPECT_EQ(read(*many->train), one);
  EXPECT_EQ(list_folder("one").size(), list_folder("many").size());
  for (const auto& file : list_folder("one"))
    EXPECT_EQ(read_file(file), read_file(std::filesystem::path("many") / file.filename())) << file;
}

// Megatron-LM adds the weights up from an integer 0, which only the first split shows.
TEST_F(Corpora, DescribeTheirSplitAsMegatronDoes) {
  const auto matrix_of = [](const std::string& split, const std::string& name) {
    const auto folder = "cache " + split + " " + name;
    (void)make({{"data_path", "x"}, {"split", split}, {"data_cache_path", folder}}, {2, 2, 2});
    for (const auto& file : list_folder(folder))
      if (file.string().ends_with("GPTDataset-" + name + "-description.txt")) {
        const auto json = nlohmann::ordered_json::parse(read_file(file));
        return json.at("split_matrix").dump();
      }
    return std::string();
  };
  EXPECT_EQ(matrix_of("0,3,1", "valid"), "[null,[0.0,0.75],[0.75,1.0]]");
  EXPECT_EQ(matrix_of("0,0,1", "test"), "[null,null,[0.0,1.0]]");
  EXPECT_EQ(matrix_of("3,0,1", "train"), "[[0,0.75],null,[0.75,1.0]]");
  EXPECT_EQ(matrix_of("1,1", "train"), "[[0,0.5],[0.5,1.0],null]");
}

class StaleCache : public Corpora {
 protected:
  /// Documents of these lengths under the same prefix.
  static void preprocess_again(const std::vector<std::size_t>& lengths, const std::string& prefix = "x") {
    indexed::IndexedDatasetBuilder builder(prefix, indexed::TokenType::uint16);
    std::int32_t token = 0;
    for (const auto length : lengths) {
      builder.add_sequence(Ids(length, ++token % 90));
      builder.end_document();
    }
    builder.finish();
  }
  Ids train(const std::string& cache, const std::string& path = "x", data::SamplesAsked asked = {40, 0, 0}) {
    told_.clear();
    data::DataParts parts{4, asked, 1, 100, {}};
    parts.tell = [this](const std::string& line) { told_ += line + "\n"; };
    std::map<std::string, std::string> options = {{"data_path", path}, {"split", "1,0,0"}};
    if (!cache.empty()) options["data_cache_path"] = cache;
    return read(*chosen(datasets(), options, parts)->train);
  }
  static std::filesystem::path only(const std::string& ending) {
    for (const auto& file : list_folder("cache"))
      if (file.string().ends_with(ending)) return file;
    return {};
  }
  std::string told_;
};

// Neither the number of documents nor that of tokens tells.
TEST_F(StaleCache, OfAnotherCorpusOfTheSameSizeIsBuiltAgain) {
  preprocess_again({9, 5, 7, 3, 6});
  (void)train("cache");
  EXPECT_EQ(train("cache"), train("fresh1"));
  EXPECT_EQ(told_, "");
  preprocess_again({5, 9, 3, 7, 6});
  const auto got = train("cache");
  EXPECT_NE(told_.find("built again"), std::string::npos) << told_;
  EXPECT_NE(told_.find("other data with the same prefix"), std::string::npos) << told_;
  EXPECT_EQ(got, train("fresh2"));
  (void)train("cache");
  EXPECT_EQ(told_, "");
}

TEST_F(StaleCache, IsNoticedInFilesThatMegatronWrote) {  // which have no sums
  preprocess_again({9, 5, 7, 3, 6});
  const auto first = train("cache");
  std::filesystem::remove(only("checked.txt"));
  EXPECT_EQ(train("cache"), first);  // good ones are used
  EXPECT_EQ(told_, "");
  EXPECT_FALSE(only("checked.txt").empty());
  std::filesystem::remove(only("checked.txt"));
  preprocess_again({5, 9, 3, 7, 6});
  const auto got = train("cache");
  EXPECT_NE(told_.find("other data with the same prefix"), std::string::npos) << told_;
  EXPECT_EQ(got, train("fresh"));
}

// The file of sums is of the present data, the arrays are not.
TEST_F(StaleCache, IsNoticedInArraysThatWereCopiedOver) {
  preprocess_again({9, 5, 7, 3, 6});
  (void)train("old");
  preprocess_again({5, 9, 3, 7, 6});
  const auto right = train("cache");
  for (const auto& file : list_folder("old"))
    if (file.extension() == ".npy")
      std::filesystem::copy_file(file, std::filesystem::path("cache") / file.filename(),
                                 std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(train("cache"), right);
  EXPECT_NE(told_.find("built again"), std::string::npos) << told_;
}

// A page that is gone reads as zeros, which are samples too.
TEST_F(StaleCache, AnIndexOrACacheThatIsTruncatedWhileItIsReadIsNamed) {
  preprocess_again(std::vector<std::size_t>(3000, 9));
  data::DataParts parts{4, {5000, 0, 0}, 1, 100, {}};
  const std::map<std::string, std::string> options = {
      {"data_path", "x"}, {"split", "1,0,0"}, {"data_cache_path", "cache"}};
  for (const auto* name : {"x.idx", "train-document_index.npy", "train-sample_index.npy", "train-shuffle_index.npy"}) {
    const auto data = chosen(datasets(), options, parts);
    const auto file = std::string(name) == "x.idx" ? std::filesystem::path(name) : only(name);
    const auto whole = read_file(file);
    std::filesystem::resize_file(file, 0);
    try {
      (void)read(*data->train);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      const std::string words = error.what();  // perhaps of the zeros: then the cause is still to be reported
      const auto cause = words.find("SIGBUS") == std::string::npos ? take_unreported_loss().string() : words;
      EXPECT_NE(cause.find(file.filename().string()), std::string::npos) << words;
    }
    std::ofstream(file, std::ios::binary) << whole;
  }
}

TEST_F(StaleCache, EntriesThatAreDamagedAreNoticed) {
  const auto damaged = [&](const std::string& array, std::size_t at, std::int32_t value, const std::string& path) {
    auto bytes = read_file(only(array));
    std::memcpy(bytes.data() + 128 + at, &value, sizeof value);
    std::ofstream(only(array), std::ios::binary) << bytes;
    const auto got = train("cache", path);
    const auto name = array.substr(0, array.find('.')).substr(std::string("train-").size());
    EXPECT_NE(told_.find(name), std::string::npos) << told_;
    return got;
  };
  for (const std::string path : {"x", "0.3 x 0.7 y"}) {
    std::filesystem::remove_all("cache");
    const auto right = train("cache", path);
    EXPECT_EQ(damaged("train-document_index.npy", 0, 1, path), right);   // one twice
    EXPECT_EQ(damaged("train-document_index.npy", 4, 99, path), right);  // beyond the range
    EXPECT_EQ(damaged("train-sample_index.npy", 12, 3, path), right);
    EXPECT_EQ(damaged("train-shuffle_index.npy", 0, -1, path), right);
    EXPECT_EQ(damaged("train-shuffle_index.npy", 8, 0, path), right);
    if (path == "x") continue;
    EXPECT_EQ(damaged("train-dataset_index.npy", 0, 0x00070001, path), right);
    EXPECT_EQ(damaged("train-dataset_sample_index.npy", 8, 1 << 20, path), right);
  }
}

// With several epochs, of which the last is shuffled apart.
TEST_F(StaleCache, IsNotSuspectedInAnyShape) {
  preprocess_again({9, 5, 7, 3, 6, 0, 8});
  for (const auto samples : {1, 3, 9, 10, 14, 17, 18, 19, 27, 40, 100}) {
    (void)train("cache", "x", {samples, 0, 0});
    for (const auto& file : list_folder("cache"))
      if (file.string().ends_with("checked.txt")) std::filesystem::remove(file);
    (void)train("cache", "x", {samples, 0, 0});
    EXPECT_EQ(told_, "") << samples;
  }
}

TEST_F(Corpora, MistakesAreNamed) {
  expect_refused(
      [] {
        (void)make({{"data_path", "1 x 1 y"}}, {data::one_epoch, 0, 0});
      },
      {"train split", "weights", "epoch"});
  expect_refused([] { (void)make({{"data_path", "x"}, {"data_args_path", "y"}}); }, {"data_args_path", "exclusive"});
  expect_refused([] { (void)make({{"data_args_path", "absent"}}); }, {"absent", "data_args_path"});
  expect_refused(
      [] {
        (void)make({{"data_path", "x x y"}, {"split", "1000,1,1"}});
      },
      {"x: the valid split", "no token"});
  std::ofstream("splits.json") << R"({"train": [0.3, "x"], "valid": null})";
  expect_refused([] { (void)make({{"per_split_data_args_path", "splits.json"}}); }, {"splits.json", "'test'"});
  std::ofstream("broken.json") << R"({"train": )";
  expect_refused(
      [] {
        (void)make({{"per_split_data_args_path", "broken.json"}});
      },
      {"broken.json: is not JSON: line 1, column 11: "});
}

TEST_F(Corpora, WithoutWeightsGiveOneEpochOfEach) {
  const auto whole = make({{"train_data_path", "x y z"}}, {data::one_epoch, 0, 0});
  const auto x = make({{"train_data_path", "x"}}, {data::one_epoch, 0, 0})->train->samples();
  EXPECT_EQ(whole->train->samples(), 3 * x);
  EXPECT_EQ(make({{"train_data_path", "x y z"}}, {10, 0, 0})->train->samples(), 10);
}

}  // namespace
}  // namespace tessera::gpt
