#include "framework/interop/hugging_face/family.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/base/files.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/model/generation.h"
#include "framework/recipe/imported_recipe.h"
#include "framework/recipe/saved_model.h"
#include "tests/chosen.h"
#include "tests/interop/hugging_face/recorded.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using LibraryJson = nlohmann::json;

std::vector<std::int32_t> ids_of(const Tensor& tensor) {
  std::vector<std::int32_t> ids;
  for (const auto id : tensor.as<std::int64_t>()) ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

/// A recorded model in our hands.
class Family {
 public:
  explicit Family(const std::string& name)
      : recorded_(families / name / "case.safetensors"),
        facts_(LibraryJson::parse(read_file(families / name / "case.json"))),
        trained_(recipe::load_trained(families / name, registries())) {}

  void expect_its_logits() {
    const auto tokens = ids_of(recorded_.tensor("tokens"));
    const auto expected = recorded_.tensor("logits");
    const auto T = expected.shape()[1];
    std::vector<float> mask(tokens.size(), 1.F);
    std::vector<std::int32_t> places(tokens.size()), starts(tokens.size(), 0);
    for (std::size_t i = 0; i < places.size(); ++i)
      places[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(T));
    const std::vector<std::int64_t> samples = {0, 1};
    const TokenBatch batch{.samples = 2,
                           .seq_length = T,
                           .tokens = tokens,
                           .labels = tokens,
                           .loss_mask = mask,
                           .positions = places,
                           .document_start = starts,
                           .sample_ids = samples};
    const auto logits = trained_.model->logits(tape_, batch, {});
    // Five times what float32 arithmetic costs Transformers itself: sums run in another order here.
    const auto tolerance = 5 * facts_["float32_deviation"].get<double>();
    double worst = 0;
    for (std::size_t i = 0; i < tokens.size() * 96; ++i)
      worst = std::max(worst,
                       std::abs(static_cast<double>(logits.floats()[i]) - static_cast<double>(expected.floats()[i])));
    EXPECT_LT(worst, tolerance);
  }

  void expect_its_greedy_tokens() {
    const auto prompt = ids_of(recorded_.tensor("prompt")), expected = ids_of(recorded_.tensor("greedy"));
    model::Sampling greedy;
    greedy.temperature = 0;
    for (std::size_t row = 0; row < 2; ++row) {
      std::vector<std::int32_t> said;
      model::generate(*trained_.model, tape_, std::span(prompt).subspan(row * 6, 6), greedy, {18, {}, 96}, 0,
                      [&](std::int32_t token) { said.push_back(token); });
      EXPECT_EQ(said, std::vector<std::int32_t>(expected.begin() + static_cast<std::ptrdiff_t>(row * 18),
                                                expected.begin() + static_cast<std::ptrdiff_t>(row * 18 + 18)));
    }
  }

 private:
  checkpoint::SafetensorsReader recorded_;
  LibraryJson facts_;
  recipe::TrainedModel trained_;
  kernels::Threads threads_{1};
  Arena arena_;
  autograd::Tape tape_{arena_, threads_, false};
};

/// The weights of a source, each as a whole.
class WholeWeights final : public checkpoint::WeightSource {
 public:
  explicit WholeWeights(const checkpoint::WeightSource& of) : of_(of) {}
  const fs::path& folder() const override { return of_.folder(); }
  std::vector<std::string> names() const override { return of_.names(); }
  bool has(const std::string& name) const override { return of_.has(name); }
  Shape shape(const std::string& name) const override { return of_.shape(name); }
  DType dtype(const std::string& name) const override { return of_.dtype(name); }
  void read(const std::string& name, const Tensor& into) const override { of_.read(name, into); }

 private:
  const checkpoint::WeightSource& of_;
};

class EveryFamily : public InOwnFolder, public testing::WithParamInterface<const char*> {};

TEST_P(EveryFamily, ComputesWhatTransformersComputes) { Family(GetParam()).expect_its_logits(); }

TEST_P(EveryFamily, SaysWhatTransformersSays) { Family(GetParam()).expect_its_greedy_tokens(); }

TEST_P(EveryFamily, IsFoundAgainByItsConfiguration) {
  const options::Mappings mappings;
  const hugging_face::HuggingFaceModel model(families / GetParam(), mappings);
  const auto recipe = recipe::imported_recipe(model.recipe(), {}, {});
  const auto own = model_type_of(GetParam());
  EXPECT_EQ(hugging_face::family_that_fits(recipe, 96, {own}, {}, mappings), own);
  const auto all = hugging_face::families_to_choose_from(mappings);
  const auto found = hugging_face::family_that_fits(recipe, 96, all, {}, mappings);
  const auto config = hugging_face::write_hugging_face_config(hugging_face::whole_model_config(recipe, 96), found,
                                                              DType::float32, "", mappings);
  EXPECT_NO_THROW(hugging_face::parse_hugging_face_config(config, "config.json", mappings)) << config;
}

/// Also of weights that are fused from several, whose rows are in another order, or that are transposed in the files.
TEST_P(EveryFamily, ABoxOfAWeightIsThatOfTheWholeWeight) {
  const hugging_face::HuggingFaceModel model(families / GetParam(), options::Mappings());
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  int in_rows = 0;
  for (const auto& name : model.names()) {
    const auto shape = model.shape(name);
    if (shape.rank() != 2) continue;
    in_rows += model.reads_rows(name) ? 1 : 0;
    std::vector<float> all(static_cast<std::size_t>(shape.elements()));
    model.read(name, all);
    const std::vector<std::int64_t> first = {draw(0, shape[0] - 1), draw(0, shape[1] - 1)};
    const Shape extent{draw(1, shape[0] - first[0]), draw(1, shape[1] - first[1])};
    std::vector<float> part(static_cast<std::size_t>(extent.elements())), expected;
    for (auto row = first[0]; row < first[0] + extent[0]; ++row) {
      const auto at = all.begin() + row * shape[1] + first[1];
      expected.insert(expected.end(), at, at + extent[1]);
    }
    model.read_box({name, shape, first, Tensor(std::span(part), extent)});
    EXPECT_EQ(part, expected) << name;
  }
  EXPECT_GT(in_rows, 0);
}

/// Of any number of rows in memory, files are the same; also of a source that gives whole weights alone.
TEST_P(EveryFamily, IsWrittenAFewRowsAtATime) {
  const options::Mappings mappings;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const hugging_face::HuggingFaceModel model(families / GetParam(), mappings);
  const WholeWeights whole(model);
  hugging_face::HuggingFaceExport how;
  how.family = model.family();
  fs::remove_all("one");
  hugging_face::write_hugging_face("one", model.model_config(), whole, how, mappings);
  const auto expected = read_file("one/model.safetensors");
  for (int i = 0; i < 3; ++i) {
    how.bytes_of_rows = std::uniform_int_distribution<std::size_t>(1, 2000)(random);
    fs::remove_all("two");
    hugging_face::write_hugging_face("two", model.model_config(), model, how, mappings);
    EXPECT_EQ(read_file("two/model.safetensors"), expected) << how.bytes_of_rows;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamily,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "phi3", "gemma",
                                         "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gemma2",
                                         "gemma3_text", "glm4", "granite", "smollm3", "stablelm", "bloom", "falcon",
                                         "falcon_new", "falcon_rw", "olmo2", "phi", "opt", "phi3_longrope", "gpt_oss"),
                         [](const auto& family) { return std::string(family.param); });

TEST(HuggingFaceFamily, AModelThatNoFamilyComputesIsRefusedWithWhatDiffers) {
  const options::Mappings mappings;
  const hugging_face::HuggingFaceModel model(families / "llama", mappings);
  const auto recipe = recipe::imported_recipe(model.recipe(), {"model_config.attention_logit_softcap=30"}, {});
  const auto story = story_of([&] {
    hugging_face::family_that_fits(recipe, 96, hugging_face::families_to_choose_from(mappings), {}, mappings);
  });
  EXPECT_NE(story.find("nearest is llama"), std::string::npos) << story;
  EXPECT_NE(story.find("attention_logit_softcap is 30"), std::string::npos) << story;
  const auto forced = story_of([&] {
    hugging_face::family_that_fits(recipe::imported_recipe(model.recipe(), {}, {}), 96, {"gpt2"}, {}, mappings);
  });
  EXPECT_NE(forced.find("nearest is gpt2"), std::string::npos) << forced;
}

TEST(HuggingFaceFamily, ASpecificationOfLayersDoesNotHideTheFamily) {
  const options::Mappings mappings;
  const hugging_face::HuggingFaceModel model(families / "qwen3", mappings);
  const auto recipe = recipe::imported_recipe(
      model.recipe(), {"model_config.spec=[mindspeed_llm.tasks.models.spec.qwen3_spec, layer_spec]"}, {});
  EXPECT_EQ(hugging_face::family_that_fits(recipe, 96, {"qwen3"}, {}, mappings), "qwen3");
}

/// A window in some layers is written layer by layer.
TEST(HuggingFaceFamily, WindowsOfLayersGoOutAsTheyCameIn) {
  const options::Mappings mappings;
  for (const std::string family : {"qwen2", "qwen3", "qwen2_moe", "qwen3_moe"}) {
    const hugging_face::HuggingFaceModel model(families / family, mappings);
    std::vector<std::string> sets = {"model_config.sliding_window=5"};
    const bool common = family == "qwen3_moe";
    if (!common) sets.emplace_back("model_config.layer_types=[full_attention,sliding_attention]");
    const auto recipe = recipe::imported_recipe(model.recipe(), sets, {});
    EXPECT_EQ(hugging_face::family_that_fits(recipe, 96, {family}, {}, mappings), family);
    const auto json = LibraryJson::parse(hugging_face::write_hugging_face_config(
        hugging_face::whole_model_config(recipe, 96), family, DType::float32, "", mappings));
    EXPECT_EQ(json["use_sliding_window"], true);
    EXPECT_EQ(json["sliding_window"], 5);
    if (!common) {
      EXPECT_EQ(json["layer_types"][1], "sliding_attention") << json;
    }
  }
}

class TokenizerOfAModel : public InOwnFolder {};

TEST_F(TokenizerOfAModel, IsThatOfItsFolder) {
  EXPECT_TRUE(hugging_face::folder_tokenizer_sets(".").empty());
  write("vocab.json", "{}");
  write("merges.txt", "");
  EXPECT_EQ(hugging_face::folder_tokenizer_sets(".").front(), "dataset_config.tokenizer_type=GPT2BPETokenizer");
  write("tokenizer_config.json", R"({"tokenizer_class": "CTRLTokenizer"})");
  EXPECT_TRUE(hugging_face::folder_tokenizer_sets(".").empty());
  write("tokenizer.json", "{}");
  EXPECT_EQ(hugging_face::folder_tokenizer_sets("."),
            (std::vector<std::string>{"dataset_config.tokenizer_type=HuggingFaceTokenizer",
                                      "dataset_config.tokenizer_model=."}));
}

/// Files of a checkpoint give the tokenizer that wrote them.
TEST_F(TokenizerOfAModel, ComesBackFromTheFilesOfACheckpoint) {
  const auto again = [](const tokenizers::Tokenizer& tokenizer) {
    const auto blobs = recipe::tokenizer_blobs(tokenizer);
    for (const auto& [name, content] : blobs) {
      const fs::path path = fs::path("blobs") / name;
      fs::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << content;
    }
    return recipe::tokenizer_sets(blobs, "blobs");
  };
  const auto make = [](const std::string& type, const std::vector<std::string>& sets) {
    const auto& set = sets.at(0);
    return chosen(tokenizers::tokenizers(),
                  {{"tokenizer_type", type}, {"tokenizer_model", set.substr(set.find('=') + 1)}});
  };
  const auto model = fs::path(TESTS_DATA) / "sentencepiece" / "models" / "bpe.model";
  const auto llama = make("Llama2Tokenizer", {"dataset_config.tokenizer_model=" + model.string()});
  const auto sets = again(*llama);
  EXPECT_EQ(sets, std::vector<std::string>{"dataset_config.tokenizer_model=blobs/tokenizer.tokenizer_model.model"});
  EXPECT_EQ(make("Llama2Tokenizer", sets)->encode("Lord God"), llama->encode("Lord God"));

  fs::create_directories("hf");
  write("hf/tokenizer.json", R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
    "merges": ["a b"]}, "added_tokens": [{"id": 3, "content": "<e>", "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false}]})");
  write("hf/tokenizer_config.json", R"({"eos_token": "<e>"})");
  const auto hf = make("HuggingFaceTokenizer", {"dataset_config.tokenizer_model=hf"});
  const auto hf_sets = again(*hf);
  EXPECT_EQ(hf_sets, std::vector<std::string>{"dataset_config.tokenizer_model=blobs/tokenizer.tokenizer_model"});
  const auto hf_again = make("HuggingFaceTokenizer", hf_sets);
  EXPECT_EQ(hf_again->encode("abab"), hf->encode("abab"));
  EXPECT_EQ(hf_again->eod(), 3);
}

}  // namespace
}  // namespace tessera
