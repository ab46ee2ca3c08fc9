#include "framework/multimodal/mllm_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "framework/data/batch_loader.h"
#include "tests/images/exif_files.h"
#include "tests/listed.h"
#include "tests/multimodal/media_folder.h"

namespace tessera::multimodal {
namespace {

class Mllm : public MediaFolder {
 protected:
  static std::vector<float> pixels_of(const Batch& batch, std::int64_t row) {
    return listed(batch.field<float>("pixel_values", row));
  }
  std::vector<Json> some_records() {
    return {record("<image>", {"a.png"}), record("no image"), record("<image> and <image>", {"b.png", "a.png"}),
            record("a longer text without an image, of many tokens")};
  }
};

TEST_F(Mllm, PaddingChangesNothingOfASample) {
  write_records("records.json", some_records());
  const auto data = std::move(open({})->train);
  ASSERT_EQ(data->samples(), 4);
  const auto together = read(*data, {0, 1, 2, 3});
  EXPECT_EQ(together.seq_length % 8, 0);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto alone = read(*data, {i});
    const auto row = samples_of<TokenBatch>(together, i, 1);
    EXPECT_LE(alone.seq_length, together.seq_length);
    EXPECT_EQ(pixels_of(alone, 0), pixels_of(together, i));
    EXPECT_EQ(listed(alone.field<std::int32_t>("grid_thw")), listed(together.field<std::int32_t>("grid_thw", i)));
    const auto own = static_cast<std::size_t>(data->origins(i).at(0).count);
    for (std::size_t token = 0; token < static_cast<std::size_t>(together.seq_length); ++token) {
      if (token < own) {
        EXPECT_EQ(row.tokens[token], alone.tokens[token]);
        EXPECT_EQ(row.labels[token], alone.labels[token]);
      } else {
        EXPECT_EQ(row.labels[token], -1);
        EXPECT_EQ(row.loss_mask[token], 0);
        EXPECT_EQ(row.positions[token], 1);
      }
    }
  }
}

TEST_F(Mllm, PixelsOfASampleAreThoseOfItsPicturesInTheOrderOfTheText) {
  write_records("records.json", {record("<image> and <image>", {"b.png", "a.png"}), record("<image>", {"a.png"}),
                                 record("<image>", {"b.png"})});
  const auto data = std::move(open({})->train);
  const auto batch = read(*data, {0, 1, 2});
  auto expected = pixels_of(batch, 2);
  const auto second = pixels_of(batch, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(pixels_of(batch, 0), expected);
  EXPECT_EQ(listed(batch.field<std::int32_t>("grid_thw", 0)), (std::vector<std::int32_t>{1, 6, 8, 1, 4, 4}));
}

// A video of equal frames beside an image: the tokens say which is which, the grids are in the order of the text.
TEST_F(Mllm, VideosStandBesideImages) {
  auto both = record("<video> then <image>", {"b.png"});
  both["videos"] = Json::array({Json::array({"a.png", "a.png", "a.png"})});
  write_records("records.json", {both, record("<image>", {"a.png"})});
  const auto data = std::move(open({{"videos", "videos"}})->train);
  const auto batch = read(*data, {0, 1});
  EXPECT_EQ(listed(batch.field<std::int32_t>("grid_thw", 0)), (std::vector<std::int32_t>{2, 4, 4, 1, 6, 8}));
  const auto pixels = pixels_of(batch, 0), image = pixels_of(batch, 1);
  EXPECT_EQ(std::vector<float>(pixels.begin(), pixels.begin() + static_cast<std::ptrdiff_t>(image.size())), image);
  both["videos"] = Json::array({"film.mp4"});
  write_records("records.json", {both});
  expect_refused([&] { open({{"videos", "videos"}}); }, {"records.json:1, record 1", "film.mp4", "frames"});
}

TEST_F(Mllm, ThreadsReadTheSameAsOne) {
  write_records("records.json", some_records());
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto data = std::move(open({})->train);
  const auto order = chosen(data::samplers(), {{"dataloader_type", "cyclic"}}, data::SamplerParts{4, 2, 1});
  data::BatchLoader ahead(*data, *order, {2, 0, 1}, 3), plain(*data, *order, {2, 0, 1}, 0);
  Batch one(data->fields(), 2, data->seq_length()), other = one;
  std::int64_t consumed = 0;
  for (int i = 0; i < 12; ++i) {
    if (random() % 4 == 0) consumed = 2 * static_cast<std::int64_t>(random() % 10);  // resumed elsewhere
    ahead.read(consumed, one);
    plain.read(consumed, other);
    EXPECT_EQ(listed(one.tokens), listed(other.tokens));
    EXPECT_EQ(listed(one.field<float>("pixel_values")), listed(other.field<float>("pixel_values")));
    consumed += 2;
  }
}

TEST_F(Mllm, DropsAndCountsWhatCannotBeTrained) {
  auto odd = record("x");
  odd["messages"].push_back({{"role", "user"}, {"content", "y"}});
  auto stranger = record("x");
  stranger["messages"][std::size_t{0}]["role"] = "robot";
  write_records("records.json", {record("x"), odd, record("<image><image><image>", {"b.png", "b.png", "b.png"}),
                                 stranger, record("a text with <|image_pad|> in it"), record("<image>", {"a.png"})});
  const auto data = std::move(open({}, 60)->train);
  EXPECT_EQ(data->samples(), 2);
  for (const auto* words : {"4 of 6 records are dropped", "2: the row is cut inside an image", "2: roles", "record 2"})
    EXPECT_NE(told.find(words), std::string::npos) << words << " in " << told;
}

TEST_F(Mllm, WithSplitSpecialTokensTakesTextsAndRefusesTheFirstRecordWithAnImage) {
  const auto pad = *tokenizer_->token_id("<|image_pad|>");
  tokenizer_ = recorded_tokenizer({{"split_special_tokens", "true"}});
  write_records("records.json", {record("a text with <|image_pad|> in it"), record("x")});
  const auto data = std::move(open({})->train);
  ASSERT_EQ(data->samples(), 2) << told;
  auto batch = read(*data, {0, 1});
  EXPECT_EQ(std::ranges::count(batch.sample(0).tokens, pad), 0);
  write_records("records.json", {record("x"), record("<image>", {"a.png"})});
  expect_refused([&] { open({}); }, {"records.json", "record 2", "split_special_tokens is true", "set it to false"});
}

TEST_F(Mllm, TellsWhatItTakesDifferently) {
  write_records("records.json", {record("<image>", {"pictures/a.png"})});
  const auto data = std::move(open({{"dataset", "records.json, records.json"}, {"max_samples", "7"}})->train);
  EXPECT_EQ(data->samples(), 2);
  for (const auto* words : {"blanks around the names", "2 records, fewer than the 7", "2 image files are not in"})
    EXPECT_NE(told.find(words), std::string::npos) << words << " in " << told;
}

TEST_F(Mllm, ImagesThatCannotBeReadAreBadSamplesOrDropped) {
  write("pictures/text.png", "no picture");
  auto whole = read_file("pictures/b.png");
  write("pictures/cut.png", whole.substr(0, whole.size() / 2));
  write_records("records.json", {record("<image>", {"gone.png"}), record("<image>", {"text.png"}),
                                 record("<image>", {"cut.png"}), record("<image>", {"a.png"})});
  const auto data = std::move(open({})->train);
  EXPECT_NE(told.find("2 of 4 records have an image that cannot be read"), std::string::npos) << told;
  const std::vector<std::string> names = {"gone.png", "text.png", "cut.png"};
  for (std::int64_t i = 0; i < 3; ++i) {
    try {
      read(*data, {i});
      ADD_FAILURE() << names[static_cast<std::size_t>(i)] << " was read";
    } catch (const data::BadSampleError& error) {
      EXPECT_NE(std::string(error.what()).find(names[static_cast<std::size_t>(i)]), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(text("record ", i + 1)), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(open({{"skip_unreadable_images", "true"}})->train->samples(), 2);
  const auto order = chosen(data::samplers(), {}, data::SamplerParts{4, 4, 1});
  data::BatchLoader loader(*data, *order, {4, 0, 1}, 1, data::BatchLoader::OnBadSample::note);
  Batch batch(data->fields(), 4, data->seq_length());
  loader.read(0, batch);
  EXPECT_EQ(loader.contents().bad.size(), 3U);
}

TEST_F(Mllm, LearnsPaddingIfAsked) {
  write_records("records.json", some_records());
  const auto usual = std::move(open({})->train),
             padded = std::move(open({{"ignore_pad_token_for_loss", "false"}})->train);
  const auto without = read(*usual, {0, 1, 2, 3}), with = read(*padded, {0, 1, 2, 3});
  EXPECT_EQ(listed(with.tokens), listed(without.tokens));
  for (std::int64_t row = 0; row < 4; ++row) {
    const auto a = samples_of<TokenBatch>(without, row, 1), b = samples_of<TokenBatch>(with, row, 1);
    const auto length = static_cast<std::size_t>(usual->origins(row).at(0).count), all = a.tokens.size();
    for (std::size_t i = 0; i < all; ++i) {
      const bool padding = i + 1 >= length && i + 1 < all;
      EXPECT_EQ(b.labels[i], padding ? b.tokens[i + 1] : a.labels[i]) << row << " " << i;
      EXPECT_EQ(b.loss_mask[i], padding ? 1.0F : a.loss_mask[i]) << row << " " << i;
    }
  }
}

// A turned picture is the one that a file without EXIF data has as it should be seen; videos are turned too.
TEST_F(Mllm, TurnsPicturesByExifIfAsked) {
  const std::string files = TESTS_DATA "/images/files/";
  picture("pictures/plain.png", {140, 84}, 7);
  const auto webp = read_file(files + "lossy.webp");
  const auto size = images::load_header(files + "lossy.webp").size;
  const std::map<std::string, std::string> made = {
      {"turned.jpg", read_file(files + "exif_6.jpg")},
      {"turned.png", read_file(files + "exif_6.png")},
      {"late.png", images::png_with_late_exif(read_file("pictures/plain.png"), images::exif_with(true, 3, 5))},
      {"turned.webp", images::webp_with_exif(webp, static_cast<std::uint32_t>(size.width),
                                             static_cast<std::uint32_t>(size.height), images::exif_with(false, 3, 8))}};
  for (const auto& [name, content] : made) {
    write("pictures/" + name, content);
    auto [header, stored] = images::load_picture("pictures/" + name);
    write("pictures/upright.png", images::png_of(images::to_rgb(images::turned_upright(stored, header.orientation))));
    for (const bool video : {false, true}) {
      const auto of_files = [&](const std::string& file, const std::string& turns) {
        auto one = record(video ? "<video>" : "<image>");
        one[video ? "films" : "images"] = video ? Json::array({Json::array({file, file, file})}) : Json::array({file});
        write_records("records.json", {one});
        Options options = {{"turn_by_exif", turns}};
        if (video) options["videos"] = "films";
        const auto batch = read(*open(options)->train, {0});
        return std::pair(listed(batch.field<std::int32_t>("grid_thw")), listed(batch.field<float>("pixel_values")));
      };
      const auto turned = of_files(name, "true");
      EXPECT_EQ(turned, of_files("upright.png", "false")) << name;
      EXPECT_EQ(turned, of_files("upright.png", "true")) << name;
      EXPECT_NE(turned, of_files(name, "false")) << name;
    }
  }
}

TEST_F(Mllm, RefusesRecordsByFileAndNumber) {
  const auto refused = [&](const Json& bad, const std::vector<std::string>& parts) {
    write_records("records.json", {record("x"), bad});
    auto all = parts;
    all.insert(all.begin(), "records.json:1, record 2");
    expect_refused([&] { open({}); }, all);
  };
  refused(record("<image>"), {"1 markers <image>", "0 images"});
  refused(record("x", {"a.png"}), {"0 markers <image>", "1 images"});
  refused(record("<video>"), {"1 markers <video>", "0 videos"});
  refused(record("<audio>"), {"<audio>", "not supported"});
  auto bad = record("x");
  bad["messages"][std::size_t{1}]["content"] = 7;
  refused(bad, {"'content' of message 2", "number"});
  bad["messages"] = "x";
  refused(bad, {"'messages' is string"});
  bad = record("x");
  bad["images"] = 3;
  refused(bad, {"'images' is number"});
  write("records.json", "[{\"messages\": [}]");
  expect_refused([&] { open({}); }, {"records.json:1"});
  write("records.json", "[]");
  expect_refused([&] { open({}); }, {"records.json", "no record"});
  write_records("records.json", {record("x")});
  expect_refused([&] { open({{"videos", "films"}}); }, {"'films'", "column"});
  expect_refused([&] { open({{"template", "llava"}}); }, {"'llava'", "qwen2vl"});
}

// The same records a line each, and the whole list on one line or on many.
TEST_F(Mllm, ReadsListsAndLines) {
  const auto records = some_records();
  write_records("records.json", records);
  const auto tokens = listed(read(*open({})->train, {0, 1, 2, 3}).tokens);
  std::string lines;
  for (const auto& one : records) lines += one.dump() + "\n\n";
  write("records.json", lines);
  EXPECT_EQ(listed(read(*open({})->train, {0, 1, 2, 3}).tokens), tokens);
  write("records.json", Json(records).dump(2));
  EXPECT_EQ(listed(read(*open({{"preprocessing_num_workers", "4"}})->train, {0, 1, 2, 3}).tokens), tokens);
}

// A file is read in blocks of a megabyte, and its records are found in it again.
TEST_F(Mllm, ReadsRecordsBeyondABlock) {
  auto records = some_records();
  records[0]["id"] = std::string(3000000, 'x');
  write_records("records.json", records);
  const auto data = std::move(open({})->train);
  write_records("short.json", some_records());
  const auto same = std::move(open({{"dataset", "short.json"}})->train);
  EXPECT_EQ(listed(read(*data, {3, 1}).tokens), listed(read(*same, {3, 1}).tokens));
}

TEST_F(Mllm, ValidationDataAreTheLastSamplesOrAFileOfTheirOwn) {
  const auto records = some_records();
  write_records("records.json", records);
  write_records("valid.json", {records[1], records[0]});
  const auto all = open({});
  EXPECT_EQ(all->valid, nullptr);
  const auto split = open({{"val_rate", "0.5"}});
  EXPECT_EQ(split->train->samples(), 2);
  EXPECT_EQ(listed(read(*split->valid, {0, 1}).tokens), listed(read(*all->train, {2, 3}).tokens));
  const auto apart = open({{"val_dataset", "valid.json"}, {"val_max_samples", "1"}});
  EXPECT_EQ(apart->train->samples(), 4);
  EXPECT_EQ(listed(read(*apart->valid, {0}).tokens), listed(read(*all->train, {1}).tokens));
  EXPECT_THROW(open({{"val_dataset", "valid.json"}, {"val_rate", "0.5"}}), ConfigError);
}

TEST_F(Mllm, AShareForValidationThatHoldsOutNothingIsTold) {
  write_records("records.json", some_records());
  EXPECT_EQ(open({{"val_rate", "0.2"}})->valid, nullptr);
  EXPECT_NE(told.find("val_rate 0.2 of 4 samples holds out none"), std::string::npos) << told;
  open({{"val_rate", "0.3"}});
  EXPECT_EQ(told.find("val_rate"), std::string::npos) << told;
}

TEST_F(Mllm, AddressesAndPicturesInPlaceOfAPathAreBadSamplesOfAFewWords) {
  const std::string base64 = "data:image/png;base64," + std::string(20000, 'A');
  write_records("records.json",
                {record("<image>", {base64}), record("<image>", {"https://a.org/b.png"}), record("<image>", {""}),
                 record("<image>", {std::string(2000, 'A')}),
                 record("<image>", {"file://" + std::filesystem::absolute("pictures/a.png").string()})});
  const auto data = std::move(open({})->train);
  const auto story = [&](std::int64_t sample) {
    try {
      read(*data, {sample});
    } catch (const data::BadSampleError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(story(0).find("record 1: the image data:image/png;base64,"), std::string::npos) << story(0);
  EXPECT_NE(story(1).find("the image https://a.org/b.png is no file; only files are read"), std::string::npos);
  EXPECT_NE(story(2).find("the path of an image is empty"), std::string::npos) << story(2);
  for (const auto sample : {0, 3}) EXPECT_LT(story(sample).size(), 300U) << story(sample);
  EXPECT_EQ(story(4), "");
}

// Only limits within which there are pictures: those of image_max_pixels.
TEST_F(Mllm, TheLimitsOfTheModelThatTheRunBeginsWithAreToldIfTheyAreOthers) {
  std::filesystem::create_directory("model");
  const auto told_of = [](const std::string& limits, const MllmOptions& options = {}) {
    write("model/preprocessor_config.json", limits);
    return other_limits(options, "model");
  };
  EXPECT_EQ(told_of(R"({"min_pixels": 3136, "max_pixels": 12845056})"), "");
  for (const auto* other : {R"({"min_pixels": 784})", R"({"max_pixels": 50000})"})
    EXPECT_NE(told_of(other).find("give dataset_config.model_name_or_path: model"), std::string::npos) << other;
  MllmOptions named;
  named.model_name_or_path = "model";
  EXPECT_EQ(told_of(R"({"min_pixels": 784})", named), "");
  EXPECT_EQ(other_limits({}, "elsewhere"), "");
}

TEST(ChosenFrames, AreEvenlySpaced) {
  EXPECT_EQ(chosen_frames(3, 8), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(chosen_frames(10, 4), (std::vector<std::int64_t>{0, 3, 6, 9}));
  EXPECT_EQ(chosen_frames(10, 3), (std::vector<std::int64_t>{0, 4, 9}));
  EXPECT_EQ(chosen_frames(10, 1), (std::vector<std::int64_t>{0}));
}

}  // namespace
}  // namespace tessera::multimodal
