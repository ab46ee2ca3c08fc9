#include <algorithm>
#include <fstream>

#include "framework/base/sha256.h"
#include "framework/data/bad_sample.h"
#include "framework/multimodal/mllm_dataset.h"
#include "framework/multimodal/mllm_options.h"
#include "tests/golden/multimodal.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using multimodal::MllmRows;

const tokenizers::Tokenizer& qwen_tokenizer(const DataFolder& data, bool splits_special_tokens = false) {
  const auto own = data.path() / "tokenizer", above = data.path().parent_path() / "tokenizer";
  return data.tokenizer({{"--tokenizer-type", "HuggingFaceTokenizer"},
                         {"--tokenizer-model", (fs::exists(own) ? own : above).string()},
                         {"--split-special-tokens", splits_special_tokens ? "true" : "false"}});
}

/// The options that one of the settings of encode.json stands for.
multimodal::MllmOptions options_of(const Json& setting) {
  multimodal::MllmOptions o;
  const auto set = [&](const char* group, const char* key, auto& member) {
    if (setting.contains(group) && setting[group].contains(key) && !setting[group][key].is_null())
      setting[group][key].get_to(member);
  };
  const auto column = [&](const char* key, std::optional<std::string>& member) {
    member.reset();
    if (!setting["attr"][key].is_null()) member = setting["attr"][key].get<std::string>();
  };
  set("basic_parameters", "dataset_dir", o.media_dir);
  set("basic_parameters", "template", o.prompt_template);
  set("basic_parameters", "train_on_prompt", o.train_on_prompt);
  set("basic_parameters", "mask_history", o.mask_history);
  for (const auto& [key, member] :
       {std::pair("image_max_pixels", &o.image_max_pixels), std::pair("image_min_pixels", &o.image_min_pixels),
        std::pair("video_max_pixels", &o.video_max_pixels), std::pair("video_min_pixels", &o.video_min_pixels),
        std::pair("video_maxlen", &o.video_maxlen)})
    set("preprocess_parameters", key, *member);
  set("attr", "messages", o.messages);
  set("attr", "role_tag", o.role_tag);
  set("attr", "content_tag", o.content_tag);
  for (const auto& [key, member] :
       {std::pair("images", &o.images), std::pair("videos", &o.videos), std::pair("system", &o.system),
        std::pair("user_tag", &o.user_tag), std::pair("assistant_tag", &o.assistant_tag),
        std::pair("observation_tag", &o.observation_tag), std::pair("function_tag", &o.function_tag),
        std::pair("system_tag", &o.system_tag)})
    column(key, *member);
  return o;
}

/// The records in a file of their own.
std::shared_ptr<multimodal::RecordFiles> file_of(const DataFolder& data, const Json& records,
                                                 std::optional<std::int64_t> most = {}) {
  const auto file = (data.scratch() / "records.json").string();
  std::ofstream(file) << records.dump();
  return std::make_shared<multimodal::RecordFiles>(std::vector<std::string>{file}, most);
}

std::shared_ptr<multimodal::RowEncoder> encoder_of(const DataFolder& data, const multimodal::MllmOptions& options,
                                                   std::int64_t seq_length) {
  return std::make_shared<multimodal::RowEncoder>(qwen_tokenizer(data), multimodal::row_options(options, seq_length));
}

std::string judge_row(const multimodal::RowEncoder& encoder, const multimodal::EncodedRow& row, const Json& recorded) {
  if (row.input_ids != recorded["input_ids"].get<std::vector<std::int32_t>>())
    return text("the ids are ", Json(row.input_ids).dump());
  if (row.labels != recorded["labels"].get<std::vector<std::int32_t>>())
    return text("the labels are ", Json(row.labels).dump());
  Json paths;
  for (const auto& medium : row.media) paths.push_back(encoder.media().found(medium.frames.at(0)));
  return paths == recorded["images"] ? "" : text("the images are ", paths.dump());
}

/// All records of `records` as rows, without those that are dropped for their roles.
std::string judge_all(const multimodal::RowEncoder& encoder, const multimodal::RecordFiles& files, const Json& rows) {
  std::size_t next = 0;
  for (std::int64_t i = 0; i < files.records(); ++i) {
    std::string why;
    const auto row = encoder(files.record(i), why);
    if (!row) continue;
    if (next == rows.size()) return text("there are more rows than the ", rows.size(), " recorded ones");
    const auto wrong = judge_row(encoder, *row, rows[next++]);
    if (!wrong.empty()) return text("record ", i, ": ", wrong);
  }
  return next == rows.size() ? "" : text("there are ", next, " rows, recorded are ", rows.size());
}

/// The mask of a packed row as MindSpeed-MM writes it: with neat packing, the number of each token's record from 1 on.
std::vector<int> packed_mask(const multimodal::EncodedRow& row, std::size_t length, bool neat) {
  std::vector<int> mask(length, neat ? 0 : 1);
  for (std::size_t i = 0; neat && i < row.starts.size(); ++i)
    std::fill(mask.begin() + static_cast<std::ptrdiff_t>(row.starts[i].token),
              mask.begin() + static_cast<std::ptrdiff_t>(row.input_ids.size()), static_cast<int>(i) + 1);
  return mask;
}

/// Rows as the original packs them: also those that are cut inside an image.
std::string judge_packed(const DataFolder& data, const multimodal::RecordFiles& files, const Json& setting) {
  auto options = options_of(setting);
  options.packing = true;
  const std::int64_t length = setting["seq_length"];
  const auto encoder = encoder_of(data, options, length);
  std::vector<multimodal::EncodedRow> rows;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < files.records(); ++i) {
    std::string why;
    if (auto row = (*encoder)(files.record(i), why)) {
      lengths.push_back(static_cast<std::int64_t>(row->input_ids.size()));
      rows.push_back(std::move(*row));
    }
  }
  const bool neat = setting["basic_parameters"]["neat_packing"];
  std::size_t next = 0;
  const auto packed = multimodal::packed_rows(lengths, multimodal::packing_of(options, length).capacity);
  if (packed.size() != setting["rows"].size()) return text("there are ", packed.size(), " rows");
  for (const auto& members : packed) {
    auto row = rows[members.front()];
    for (std::size_t i = 1; i < members.size(); ++i) row.append(multimodal::EncodedRow(rows[members[i]]));
    const auto& recorded = setting["rows"][next++];
    if (recorded.contains("attention_mask") &&
        recorded["attention_mask"] != packed_mask(row, static_cast<std::size_t>(length), neat))
      return text("packed row ", next - 1, ": other masks");
    row.input_ids.resize(static_cast<std::size_t>(length), encoder->pad());
    row.labels.resize(static_cast<std::size_t>(length), instructions::ignored_label);
    const auto wrong = judge_row(*encoder, row, recorded);
    if (!wrong.empty()) return text("packed row ", next - 1, ": ", wrong);
  }
  return "";
}

std::string judge_setting(const DataFolder& data, const Json& records, const Json& setting) {
  const auto& most = setting["basic_parameters"]["max_samples"];
  const auto files = file_of(data, records, most.is_null() ? std::nullopt : std::optional(most.get<std::int64_t>()));
  if (setting["attr"].contains("packing")) return judge_packed(data, *files, setting);
  const multimodal::RowEncoder encoder(qwen_tokenizer(data, setting["preprocess_parameters"]["split_special_tokens"]),
                                       multimodal::row_options(options_of(setting), setting["seq_length"]));
  return judge_all(encoder, *files, setting["rows"]);
}

/// One bad record before a good one: dropped as there, or refused.
std::string judge_bad(const DataFolder& data, const Json& setting, const Json& good, const Json& one) {
  const auto encoder = encoder_of(data, options_of(setting), setting["seq_length"]);
  const auto& recorded = one["rows"];
  try {
    const MllmRows rows(file_of(data, Json::array({one["record"], good})), encoder, 2, true);
    if (recorded.is_object()) return text("is taken; recorded is ", recorded["says"]);
    std::int64_t readable = 0;  // a picture that is damaged behind its header is found when it is decoded
    const multimodal::MllmDataset dataset(std::make_shared<MllmRows>(rows), 0, rows.samples(), 1024, 0);
    for (std::int64_t i = 0; i < rows.samples(); ++i) {
      Batch batch(dataset.fields(), 1, dataset.seq_length());
      data::fit(dataset, std::span(&i, 1), {}, batch);
      try {
        dataset.read(i, batch);
        ++readable;
      } catch (const data::BadSampleError&) {
      }
    }
    const auto expected = static_cast<std::int64_t>(recorded.size());
    return readable == expected ? "" : text(readable, " records are left, recorded are ", expected);
  } catch (const ConfigError& error) {
    return recorded.is_object() ? "" : error.what();
  }
}

std::string judge_tags(const DataFolder& data, const Json& setting, const Json& one) {
  auto with = setting;
  with["attr"] = one["attr"];
  with["basic_parameters"]["template"] = one["template"];
  const auto& recorded = one["rows"];
  const bool has_frames = one["record"].contains("videos");  // the original cannot read lists of frames
  try {
    const auto encoder = encoder_of(data, options_of(with), setting["seq_length"]);
    const auto files = file_of(data, Json::array({one["record"]}));
    multimodal::must_have_columns(*files, encoder->names());
    if (!recorded.is_object()) return judge_all(*encoder, *files, recorded);
    std::string why;
    const auto row = (*encoder)(files->record(0), why);
    if (has_frames && row && encoder->is_whole(*row)) return "";
    return text("is taken; recorded is ", recorded["says"]);
  } catch (const ConfigError& error) {
    return recorded.is_object() && !has_frames ? "" : error.what();
  }
}

/// The sample of `rows` that is made of record `record`.
std::int64_t sample_of(const MllmRows& rows, const multimodal::RecordFiles& files, std::int64_t record) {
  for (std::int64_t i = 0; i < rows.samples(); ++i)
    if (rows.place(i) == files.place(record)) return i;
  throw NotSupported{text("row ", record, " of the batch is cut inside an image")};
}

std::string judge_pixels(const Batch& batch, const Json& recorded, std::size_t images_of_none) {
  const auto grids = batch.field<std::int32_t>("grid_thw");
  Json ours = Json::array();
  for (std::size_t i = 0; i < grids.size(); i += 3) ours.push_back({grids[i], grids[i + 1], grids[i + 2]});
  if (images_of_none > 0) return ours.empty() ? "" : "a batch of text has images";
  if (ours != recorded["image_grid_thw"]) return text("the grids are ", ours.dump());
  const auto pixels = batch.field<float>("pixel_values");
  const std::string bytes(reinterpret_cast<const char*>(pixels.data()), pixels.size_bytes());
  return sha256(bytes) == recorded["pixel_values"]["sha256"] ? "" : "the pixels differ";
}

/// The recorded ids and labels of a row as far as its own tokens reach, ours beyond: padding. In a batch of text, the
/// original puts a white picture behind its first row.
std::string judge_padded(const multimodal::MllmDataset& dataset, const Batch& batch, std::int64_t row,
                         std::int64_t sample, const Json& recorded, std::int32_t pad) {
  const auto at = static_cast<std::size_t>(row);
  const auto ours = samples_of<TokenBatch>(batch, row, 1);
  const auto length = static_cast<std::size_t>(dataset.origins(sample).at(0).count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch.seq_length); ++i) {
    if (ours.tokens[i] != (i < length ? recorded["input_ids"][at][i].get<std::int32_t>() : pad))
      return text("row ", row, ": token ", i, " is ", ours.tokens[i]);
    const auto beyond = recorded["ignore_pad_token_for_loss"] == true || i + 1 == ours.labels.size() ? -100 : pad;
    const auto label = i + 1 < length ? recorded["labels"][at][i + 1].get<std::int32_t>() : beyond;
    if (ours.labels[i] != (label == -100 ? -1 : label) || ours.loss_mask[i] != (label == -100 ? 0.0F : 1.0F))
      return text("row ", row, ": label ", i, " is ", ours.labels[i]);
  }
  return "";
}

std::string judge_batch(const DataFolder& data, const Json& encode, std::int64_t seq_length, const Json& recorded,
                        multimodal::ImageBackend backend) {
  auto options = options_of(encode["settings"]["default"]);
  options.ignore_pad_token_for_loss = recorded["ignore_pad_token_for_loss"];
  options.image_backend = backend;
  const auto encoder = encoder_of(data, options, seq_length);
  const auto files = file_of(data, encode["records"]);
  const auto rows = std::make_shared<MllmRows>(files, encoder, 1, false);
  const multimodal::MllmDataset dataset(rows, 0, rows->samples(), seq_length, 0);
  std::vector<std::int64_t> samples;
  bool is_text = true;
  for (const std::int64_t record : recorded["rows"]) {
    samples.push_back(sample_of(*rows, *files, record));
    is_text = is_text && rows->extents(samples.back()).media == 0;
  }
  Batch batch(dataset.fields(), static_cast<std::int64_t>(samples.size()), seq_length);
  data::fit(dataset, samples, {}, batch);
  if (!is_text && batch.seq_length != static_cast<std::int64_t>(recorded["input_ids"][0].size()))
    return text("rows are padded to ", batch.seq_length, " tokens, recorded are ", recorded["input_ids"][0].size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    dataset.read(samples[i], batch.sample(row));
    const auto wrong = judge_padded(dataset, batch, row, samples[i], recorded, encoder->pad());
    if (!wrong.empty()) return wrong;
  }
  return judge_pixels(batch, recorded, is_text ? 1 : 0);
}

}  // namespace

void judge_rows(DataFolder& data) {
  if (!data.has("encode.json")) return;
  const auto all = data.json("encode.json");
  const InFolder here(data.path());
  const auto& usual = all["settings"]["default"];
  for (const auto& [name, setting] : all["settings"].items())
    data.run("encode/" + name, [&, &one = setting] { return judge_setting(data, all["records"], one); });
  for (const auto& [name, one] : all["bad"].items())
    data.run("bad/" + name, [&, &bad = one] { return judge_bad(data, usual, all["records"][1], bad); });
  for (const auto& [name, one] : all["tags"].items())
    data.run("tags/" + name, [&, &tags = one] { return judge_tags(data, usual, tags); });
}

void judge_batches(DataFolder& data) {
  if (!data.has("collate.json") || !data.has("encode.json")) return;
  const auto all = data.json("collate.json"), encode = data.json("encode.json");
  const InFolder here(data.path());
  for (std::size_t i = 0; i < all["batches"].size(); ++i) {
    const auto judge = [&](const std::string& name, const Json& recorded, multimodal::ImageBackend backend) {
      data.run(text("collate/", i, name),
               [&] { return judge_batch(data, encode, all["seq_length"], recorded, backend); });
    };
    judge("", all["batches"][i], multimodal::ImageBackend::torchvision);
    for (const auto& other : all.value("differs_in_2_1_0", Json::array()))
      if (other["rows"] == all["batches"][i]["rows"] && other.value("only_pixels", false)) {
        auto pil = all["batches"][i];
        pil.update(other["there"]);
        judge("_pil", pil, multimodal::ImageBackend::pil);
        break;
      }
  }
}

}  // namespace tessera::golden
