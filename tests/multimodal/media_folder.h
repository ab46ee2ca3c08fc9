#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/data/dataset.h"
#include "framework/images/picture.h"
#include "framework/multimodal/catalog.h"
#include "framework/tokenizers/tokenizer.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::multimodal {

/// A folder with pictures and the recorded tokenizer, and what the options of dataset_type mllm make of it.
class MediaFolder : public InOwnFolder {
 protected:
  MediaFolder() {
    std::filesystem::create_directory("pictures");
    picture("pictures/a.png", {56, 56}, 40);
    picture("pictures/b.png", {112, 84}, 90);
    picture("pictures/c.png", {300, 30}, 200);
  }

  /// Grey, with a gradient.
  static void picture(const std::string& name, images::Size size, int level) {
    images::Picture made{images::Mode::RGB, size,
                         std::vector<std::uint8_t>(static_cast<std::size_t>(3 * size.pixels()))};
    for (std::size_t i = 0; i < made.samples.size(); ++i)
      made.samples[i] = static_cast<std::uint8_t>((static_cast<std::size_t>(level) + i * i / 7) % 256);
    write(name, images::png_of(made));
  }
  /// A record with one turn, whose prompt has the markers.
  static Json record(const std::string& prompt, const std::vector<std::string>& images = {}) {
    return {{"images", images},
            {"messages",
             Json::array({{{"role", "user"}, {"content", prompt}}, {{"role", "assistant"}, {"content", "the cat"}}})}};
  }
  static void write_records(const std::string& name, const std::vector<Json>& records) {
    write(name, Json(records).dump());
  }

  using Options = std::map<std::string, std::string>;
  std::unique_ptr<data::DataSplits> open(Options options, std::int64_t seq_length = 200) {
    options.insert({{"dataset_type", "mllm"}, {"dataset", "records.json"}, {"media_dir", "pictures"}});
    auto registry = data::dataset_registry();
    register_datasets(registry);
    data::DataParts parts;
    parts.seq_length = seq_length;
    parts.asked = {100, 100, 0};
    parts.tokenizer = tokenizer_.get();
    told.clear();
    parts.warn = [this](const std::string& line) { told += line + "\n"; };
    return chosen(registry, options, std::move(parts));
  }
  /// A micro-batch of the samples `indices`.
  static Batch read(const data::Dataset& data, const std::vector<std::int64_t>& indices) {
    Batch batch(data.fields(), static_cast<std::int64_t>(indices.size()), data.seq_length());
    data::fit(data, indices, {}, batch);
    for (std::size_t i = 0; i < indices.size(); ++i) data.read(indices[i], batch.sample(static_cast<std::int64_t>(i)));
    return batch;
  }

  std::string told;  ///< lines about the data

  static std::unique_ptr<tokenizers::Tokenizer> recorded_tokenizer(Options options = {}) {
    options.insert(
        {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", TESTS_DATA "/multimodal/tokenizer"}});
    return chosen(tokenizers::tokenizers(), options);
  }
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_ = recorded_tokenizer();
};

}  // namespace tessera::multimodal
