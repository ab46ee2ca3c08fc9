// The JSON files of --config.
#include "framework/cli/inference_settings.h"

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::cli {
namespace {

class InferenceSettingsFile : public InOwnFolder {
 protected:
  static InferenceSettings read(const std::string& words) {
    write("settings.json", words);
    return read_inference_settings("settings.json");
  }
  static std::string story(const std::string& generation) {
    return story_of([&] { read("{\"prompts\": \"p\", \"generation_config\": " + generation + "}"); });
  }
};

TEST_F(InferenceSettingsFile, ValuesOfAnotherTypeAreRefused) {
  EXPECT_TRUE(
      says(story(R"({"do_sample": "false"})"), "generation_config.do_sample is \"false\", expected true or false"));
  EXPECT_TRUE(says(story(R"({"max_new_tokens": 1.5})"), "max_new_tokens is 1.5, expected a whole number"));
  EXPECT_TRUE(says(story(R"({"top_k": 0.5})"), "top_k is 0.5, expected a whole number"));
  EXPECT_TRUE(says(story("7"), "generation_config is 7, expected an object"));
  EXPECT_EQ(story(R"({"do_sample": true, "max_new_tokens": 12.0})"), "no error");
}

TEST_F(InferenceSettingsFile, KeysThatMayBeMistakesAreTold) {
  const auto told = [](const std::string& words) { return joined(read(words).notes, "\n"); };
  EXPECT_EQ(told(R"({"prompts": "p", "promts": 1, "generation_config": {"max_new_token": 5, "length_penalty": 2}})"),
            "settings.json: promts is not read; did you mean 'prompts'?\n"
            "settings.json: generation_config.max_new_token is not read; did you mean 'max_new_tokens'?\n"
            "settings.json: generation_config.length_penalty is not read");
  EXPECT_EQ(told(R"({"prompts": "p", "text_decoder": {}, "min_pixels": 1003520, "generation_config":
                     {"bos_token_id": 1, "pad_token_id": 1, "use_cache": true, "transformers_version": "4.45.0",
                      "max_length": 9, "max_new_tokens": 4, "_from_model_config": true, "constraints": null}})"),
            "");
  EXPECT_NE(told(R"({"prompts": "p", "generation_config": {"max_length": 9}})").find("max_length"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli
