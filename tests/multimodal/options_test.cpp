// Each option of dataset_type mllm changes what a run reads, or refuses it.

#include <gtest/gtest.h>

#include <set>

#include "framework/multimodal/mllm_options.h"
#include "tests/multimodal/media_folder.h"

namespace tessera::multimodal {
namespace {

struct OptionCase {
  std::string value;
  std::map<std::string, std::string> with = {};
};

const std::map<std::string, std::string> tools = {{"dataset", "tools.json"}};
const std::map<std::string, std::string> films = {{"dataset", "films.json"}, {"videos", "films"}};
const std::map<std::string, std::string> both = {{"dataset", "other.json"}};

const std::map<std::string, std::string> packed = {{"packing", "true"}};

const std::map<std::string, OptionCase> option_cases = {
    {"dataset", {"films.json"}},
    {"media_dir", {"elsewhere"}},
    {"model_name_or_path", {"model"}},
    {"template", {"qwen"}},
    {"train_on_prompt", {"true"}},
    {"mask_history", {"true"}},
    {"ignore_pad_token_for_loss", {"false"}},
    {"max_samples", {"2"}},
    {"image_max_pixels", {"1000"}},
    {"image_min_pixels", {"30000"}},
    {"video_max_pixels", {"1000", films}},
    {"video_min_pixels", {"30000", films}},
    {"video_maxlen", {"2", films}},
    {"skip_unreadable_images", {"true", {{"dataset", "gone.json"}}}},
    {"turn_by_exif", {"true"}},
    {"image_backend", {"pil"}},
    {"patch_size", {"7"}},
    {"temporal_patch_size", {"1"}},
    {"spatial_merge_size", {"1"}},
    {"messages", {"films"}},
    {"images", {"other"}},
    {"videos", {"films", {{"dataset", "films.json"}}}},
    {"system", {"system", both}},
    {"role_tag", {"from"}},
    {"content_tag", {"value"}},
    {"user_tag", {"human"}},
    {"assistant_tag", {"gpt"}},
    {"observation_tag", {"tool", tools}},
    {"function_tag", {"call", tools}},
    {"system_tag", {"system", both}},
    {"packing", {"true"}},
    {"neat_packing", {"true", packed}},
    {"preprocessing_batch_size", {"1", packed}},
    {"val_dataset", {"other.json"}},
    {"val_rate", {"0.5"}},
    {"val_max_samples", {"1", {{"val_dataset", "records.json"}}}},
};

class MllmOption : public MediaFolder {
 protected:
  MllmOption() {
    const auto message = [](const char* role, const char* content) {
      return Json{{"role", role}, {"content", content}};
    };
    auto turns = record("the cat", {});
    for (const auto& one : {message("user", "red ball"), message("assistant", "a tree")})
      turns["messages"].push_back(one);
    write_records("records.json", {record("<image> the cat", {"a.png"}), record("<image><image>", {"b.png", "c.png"}),
                                   turns, record("<image>", {"turned.png"})});
    std::filesystem::copy_file(TESTS_DATA "/images/files/exif_6.png", "pictures/turned.png");
    Json other = {
        {"system", "red"},
        {"images", Json::array()},
        {"messages", Json::array({message("system", "ball"), message("user", "a"), message("assistant", "b")})}};
    auto plain = other;
    plain["messages"] = Json::array({message("user", "a"), message("assistant", "b")});
    auto answered = plain, called = plain;
    answered["messages"] = Json::array({message("tool", "a"), message("assistant", "b")});
    called["messages"] = Json::array({message("user", "a"), message("call", "b")});
    write_records("other.json", {other, plain});
    write_records("tools.json", {plain, answered, called});
    auto film = plain;
    film["messages"][std::size_t{0}]["content"] = "<video>";
    film["films"] = Json::array({Json::array({"b.png", "b.png", "b.png", "b.png"})});
    write_records("films.json", {film, plain});
    write_records("gone.json", {record("<image>", {"gone.png"}), record("<image>", {"a.png"})});
    std::filesystem::create_directory("model");
    write("model/preprocessor_config.json", R"({"min_pixels": 20000})");
  }

  /// All that the splits hold; the refusal if there is one.
  std::string seen(const Options& options) {
    try {
      const auto splits = open(options);
      std::string all;
      for (const auto* data : {splits->train.get(), splits->valid.get()}) {
        all += "split\n";
        for (std::int64_t i = 0; data && i < data->samples(); ++i) all += sample(*data, i);
      }
      return all;
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

 private:
  static std::string sample(const data::Dataset& data, std::int64_t index) {
    try {
      const auto batch = read(data, {index});
      Json shown = {{"tokens", batch.tokens}, {"labels", batch.labels}, {"positions", batch.positions}};
      shown["attends_from"] = batch.document_start;
      shown["grids"] = batch.field<std::int32_t>("grid_thw");
      shown["pixels"] = batch.field<float>("pixel_values");
      return shown.dump() + "\n";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
};

TEST_F(MllmOption, ChangesWhatARunReads) {
  std::map<Options, std::string> usual;
  for (const auto& [name, one] : option_cases) {
    auto& before = usual[one.with];
    if (before.empty()) before = seen(one.with);
    auto changed = one.with;
    changed[name] = one.value;
    EXPECT_NE(seen(changed), before) << name;
  }
  EXPECT_EQ(seen({{"preprocessing_num_workers", "3"}}), usual[{}]);
  EXPECT_NE(seen({{"preprocessing_num_workers", "3"}, {"packing", "true"}}), usual[packed]);
}

TEST_F(MllmOption, HasACase) {
  std::set<std::string> known = {"preprocessing_num_workers"}, all;
  for (const auto& [name, one] : option_cases) known.insert(name);
  for (const auto& option : options::schema_of<MllmOptions>().facts("")) all.insert(option.name);
  EXPECT_EQ(known, all);
}

TEST(FilesOfAList, HaveNoBlanks) {
  EXPECT_EQ(files_of_list(" a b.json,c.json\t, d"), (std::vector<std::string>{"a b.json", "c.json", "d"}));
  for (const auto* list : {"", "a,,b", "a, "}) EXPECT_THROW(files_of_list(list), ConfigError) << list;
}

}  // namespace
}  // namespace tessera::multimodal
