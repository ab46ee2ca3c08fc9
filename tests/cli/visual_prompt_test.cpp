// Conversations with images and videos as a model reads them.
#include "framework/cli/visual_prompt.h"

#include <gtest/gtest.h>

#include "tests/story.h"

namespace tessera::cli {
namespace {

const std::string pictures = TESTS_DATA "/multimodal/text/pictures/";

Json video(const std::string& more) {
  return read_json(
      text(R"([{"role": "user", "content": [{"type": "video", "video": ["a.png", "a.png", "a.png", "a.png"])", more,
           R"(}, {"type": "text", "text": "what"}]}])"));
}

model::VisionOptions tower(std::optional<double> rate) {
  model::VisionOptions vision;
  vision.image_token_id = 8;
  vision.video_token_id = 9;
  vision.tokens_per_second = rate;
  return vision;
}

/// Positions of time of the video's features, each once.
std::vector<std::int32_t> times(const std::string& more, std::optional<double> rate) {
  const auto conversation = with_images(video(more), {}, pictures);
  const VisualPrompt prompt({1, 9, 2}, conversation.visuals, tower(rate), {});
  const auto& batch = prompt.batch();
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i)
    if (batch.tokens[i] == 9 && (out.empty() || out.back() != batch.positions[i])) out.push_back(batch.positions[i]);
  return out;
}

TEST(VisualPrompt, FramesOfAVideoArePlacedByTheirTimesIfTheTowerDoesSo) {
  EXPECT_EQ(times("", {}), (std::vector<std::int32_t>{1, 2}));  // two frames make a time step
  EXPECT_EQ(times(R"(, "fps": 2)", 2), (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(times(R"(, "fps": 1)", 4), (std::vector<std::int32_t>{1, 9}));
  EXPECT_EQ(times(R"(, "fps": 24)", 2), (std::vector<std::int32_t>{1}));  // a sixth of a position is rounded down
}

TEST(VisualPrompt, TimesThatAreMissingOrHaveNoUseAreRefused) {
  EXPECT_TRUE(says(story_of([] { times("", 2); }), "has no \"fps\""));
  EXPECT_TRUE(says(story_of([] { times(R"(, "fps": 2)", {}); }), "leave \"fps\" out"));
  for (const auto* bad : {"0", "-1", "\"2\"", "null", "1e-9"})
    EXPECT_TRUE(
        says(story_of([&] { times(text(R"(, "fps": )", bad), 2); }), "expected its frames in a second, at least 0.001"))
        << bad;
}

TEST(VisualPrompt, AFrameBeyondAllPositionsIsRefusedWithItsFps) {
  EXPECT_TRUE(says(story_of([] { times(R"(, "fps": 0.001)", 1e7); }), "has \"fps\" 0.001, so its last frames"));
}

TEST(VisualPrompt, AMessageThatIsNoTextGetsNoImage) {
  const auto with = [](const char* content) {
    return story_of([&] {
      with_images(
          read_json(text(R"([{"role": "system", "content": "s"}, {"role": "user", "content": )", content, "}]")),
          {"a.png"}, pictures);
    });
  };
  EXPECT_TRUE(says(with("5"), "message 2, which gets the images, has the content 5; expected a text or a list"))
      << with("5");
  EXPECT_EQ(with("\"what\""), "no error");
}

TEST(VisualPrompt, AddressesAndPicturesInPlaceOfAPathAreRefused) {
  const auto user = read_json(R"([{"role": "user", "content": "what"}])");
  const auto given = [&](const std::string& address) { return story_of([&] { with_images(user, {address}, "."); }); };
  EXPECT_TRUE(says(given("https://a.org/b.png"), "the image https://a.org/b.png is no file; only files are read"));
  EXPECT_TRUE(says(given("data:image/png;base64," + std::string(500, 'A')), "(522 bytes) is no file"));
  EXPECT_TRUE(says(given(std::string(5000, 'A')), "is no path"));
  EXPECT_TRUE(says(given(""), "the path of an image is empty"));
  EXPECT_EQ(with_images(user, {"file:///tmp/a.png"}, ".").visuals[0].files[0], "/tmp/a.png");
}

TEST(VisualPrompt, AnImageThatIsNoPathIsNamed) {
  const auto story = story_of([] {
    with_images(read_json(R"([{"role": "user", "content": [{"type": "image", "image": 3}]}])"), {}, pictures);
  });
  EXPECT_TRUE(says(story, "{\"type\":\"image\",\"image\":3} has number as \"image\"")) << story;
}

}  // namespace
}  // namespace tessera::cli
