// Which pictures a trained model is shown, and what of them is refused.
#include "framework/cli/trained_pictures.h"

#include "framework/multimodal/mllm_options.h"
#include "tests/cli/run_program.h"
#include "tests/golden/registries.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const std::string chat = TESTS_DATA "/models/qwen2_vl_chat/hf", shown = TESTS_DATA "/images/files/";

class TrainedPictures : public InOwnFolder {
 protected:
  TrainedPictures() {
    fs::copy(chat, "hf");
    limits(50000);
  }
  static void limits(int most) {
    write("hf/preprocessor_config.json", text("{\"min_pixels\": 784, \"max_pixels\": ", most, "}"));
  }
  static recipe::TrainedModel load(const std::string& folder) {
    return recipe::load_trained(folder, golden::all_registries());
  }
  /// As if it had been trained by these options of dataset_config.
  static recipe::TrainedModel trained_with(const std::vector<std::string>& options) {
    auto model = load("hf");
    const auto registries = golden::all_registries();
    options::Value tree;
    const auto set = [&](const std::string& name, const std::string& value) {
      tree.set("dataset_config." + name, options::Value::of(value, {"test", 0, "", 1}));
    };
    set("dataset_type", "mllm");
    for (const auto& option : options) set(option.substr(0, option.find('=')), option.substr(option.find('=') + 1));
    options::Report report;
    options::Group group(tree, "dataset_config", report);
    model.recipe.dataset = registries.datasets.read(group);
    report.must_be_good();
    return model;
  }
  static PictureSettings pictures(const recipe::TrainedModel& model) {
    return trained_pictures(model, tower_that_sees(model));
  }
  static Outcome generate(std::vector<std::string> words) {
    words.insert(words.begin(), "generate");
    words.insert(words.end(), {"--tokens", "12"});
    return run_program(std::move(words));
  }
};

TEST_F(TrainedPictures, ACheckpointHasTheImageProcessorThatItCarries) {
  const auto done = run_program({"checkpoint", "convert", "--from", "hf", "--to", "tessera", "hf", "run"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(pictures(load("run")).processor.max_pixels, 50000);
  EXPECT_EQ(pictures(load("hf")).processor.max_pixels, 50000);
}

TEST_F(TrainedPictures, ARunIsShownPicturesAsItWasTrainedOnThem) {
  const auto plain = pictures(trained_with({}));
  EXPECT_EQ(plain.processor.max_pixels, images::ProcessorOptions{}.max_pixels);
  EXPECT_EQ(plain.loading, PictureLoading::rgb);
  const auto model = trained_with({"turn_by_exif=true", "image_backend=pil", "model_name_or_path=hf"});
  const auto as_trained = pictures(model);
  EXPECT_EQ(as_trained.processor.max_pixels, 50000);
  EXPECT_EQ(as_trained.processor.backend, images::Backend::pil);
  EXPECT_EQ(as_trained.of_videos, images::Backend::pil);
  EXPECT_EQ(as_trained.loading, PictureLoading::load_image);
}

TEST_F(TrainedPictures, OfAFolderThatIsGoneThoseOfTheCheckpointAreTakenWithAWarning) {
  const auto model = trained_with({"image_backend=pil", "model_name_or_path=gone"});
  testing::internal::CaptureStderr();
  const auto as_carried = pictures(model);
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(as_carried.processor.max_pixels, 50000);
  EXPECT_EQ(as_carried.processor.backend, images::Backend::pil);
  EXPECT_TRUE(says(told, "image processor of gone (dataset_config.model_name_or_path), which is not there")) << told;
  fs::remove("hf/preprocessor_config.json");
  EXPECT_TRUE(says(story_of([&] { pictures(model); }), "gone/preprocessor_config.json"));
}

TEST_F(TrainedPictures, AModelWithPositionsOfOneAxisSeesNoPictures) {
  auto model = load("hf");
  model.recipe.resolved.set("model_config.position_embedding_type", options::Value::of("rope", {"test", 0, "", 1}));
  const auto story = story_of([&] { tower_that_sees(model); });
  EXPECT_TRUE(says(story, "position_embedding_type is rope") && says(story, "needs position_embedding_type mrope"))
      << story;
}

TEST_F(TrainedPictures, ABadConversationIsNamedBeforeTheFirstAnswer) {
  const std::string good = R"([{"role": "user", "content": "hello"}], )";
  std::string words = "[";
  for (int i = 0; i < 9; ++i) words += good;
  const auto with_last = [&](const std::string& last) {
    write("all.json", words + R"([{"role": "user", "content": )" + last + "}]]");
    auto told = generate({"hf", "--messages", "all.json"});
    EXPECT_EQ(told.code, 2);
    EXPECT_EQ(told.out, "");
    return told.err;
  };
  EXPECT_TRUE(says(with_last(R"([{"type": "image", "image": "gone.png"}])"), "all.json: conversation 10: gone.png: "));
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "cat ";
  const auto story = with_last("\"" + many + "\"");
  EXPECT_TRUE(says(story, "all.json: conversation 10: the prompt has ")) << story;
}

TEST_F(TrainedPictures, AsManyTokensAsANumberCanSayEndAtTheLastPosition) {
  write("two.json", R"([[{"role": "user", "content": "hello"}], [{"role": "user", "content": "cat"}]])");
  const auto told = run_program(
      {"generate", "hf", "--messages", "two.json", "--temperature", "0", "--tokens", "9223372036854775807"});
  EXPECT_EQ(told.code, 0) << told.err;
}

TEST_F(TrainedPictures, FlagsBesideAFileOfSettingsCount) {
  limits(12845056);
  write("settings.json", text(R"({"prompts": "What?", "image_path": ")", shown, R"(mode_RGBA.png", "generation_config":
                              {"max_new_tokens": 12}})"));
  const auto alone = [&](const std::string& loading) {
    return generate({"hf", "--prompt", "What?", "--image", shown + "mode_RGBA.png", "--temperature", "0",
                     "--image-loading", loading})
        .out;
  };
  const auto with_file = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", "hf", "--config", "settings.json"});
    return run_program(words).out;
  };
  ASSERT_NE(alone("rgb"), alone("qwen_vl_utils"));
  EXPECT_EQ(with_file({}), alone("qwen_vl_utils"));
  EXPECT_EQ(with_file({"--image-loading", "rgb"}), alone("rgb"));
}

TEST_F(TrainedPictures, AStrideOfRecordsIsRefused) {
  const auto told = run_program({"eval", "hf", "--records", "records.json", "--stride", "7"});
  EXPECT_EQ(told.code, 2);
  EXPECT_TRUE(says(told.err, "leave --stride out")) << told.err;
}

TEST_F(TrainedPictures, RecordsOfTextAloneAreEvaluated) {
  write("records.json",
        R"([{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "cat"}]}])");
  const auto told = run_program({"eval", "hf", "--records", "records.json"});
  EXPECT_EQ(told.code, 0) << told.err;
}

}  // namespace
}  // namespace tessera::cli
