// What a run reads and in which order: dataset indices, samples, masks, samplers.

#include <algorithm>

#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/data/legacy_random.h"
#include "framework/gpt/blended_dataset.h"
#include "framework/gpt/gpt_splits.h"
#include "framework/gpt/md5.h"
#include "framework/gpt/mock_source.h"
#include "framework/indexed/indexed_dataset.h"
#include "tests/golden/data_cases.h"
#include "tests/listed.h"

namespace tessera::golden {
namespace {

gpt::Blend blend_of(const Json& recorded) {
  gpt::Blend blend{recorded[0].get<std::vector<std::string>>(), {}};
  if (!recorded[1].is_null()) blend.weights = recorded[1].get<std::vector<double>>();
  return blend;
}

gpt::GptSplits::Options options_of(const Json& row, const tokenizers::Tokenizer& tokenizer) {
  gpt::GptSplits::Options options;
  options.documents.add_extra_token_to_sequence = row["add_extra_token_to_sequence"];
  options.documents.drop_last_partial_validation_sequence = row["drop_last_partial_validation_sequence"];
  options.seq_length = row["sequence_length"];
  options.seed = row["random_seed"];
  options.vocab_size = tokenizer.vocab_size();
  options.eod = tokenizer.eod();
  options.tokenizer = tokenizer.identity();
  if (row["tokenizer"] == "gpt2")  // wherever the files are here, their names were these
    options.tokenizer->paths = {"gpt2/gpt2-vocab.json", "gpt2/gpt2-merges.txt"};
  options.threads = 2;
  return options;
}

gpt::GptSplits::Splits splits_of(const Json& row, const tokenizers::Tokenizer& tokenizer,
                                 const gpt::GptSplits::Options& options) {
  gpt::SplitsWanted wanted;
  for (std::size_t k = 0; k < 3; ++k) {
    wanted[k].emplace();
    if (!row["sizes"][k].is_null()) wanted[k]->samples = row["sizes"][k].get<std::int64_t>();
  }
  const gpt::GptSplits splits(options);
  if (row["mock"])
    return splits.of_mock(std::make_shared<gpt::MockSource>(tokenizer.vocab_size(), tokenizer.eod()), wanted);
  if (row["blend_per_split"].is_null()) return splits.of_blend(blend_of(row["blend"]), row["split"], wanted);
  gpt::GptSplits::Splits all;
  for (std::size_t k = 0; k < 3; ++k)
    if (const auto& blend = row["blend_per_split"][k]; !blend.is_null())
      all[k] = splits.of_split(blend_of(blend), k, *wanted[k]);
  return all;
}

std::string judge_array(const char* name, const gpt::IndexArray& ours, const Json& recorded) {
  if (recorded["dtype"] != gpt::numpy_name(ours.type()) || recorded["shape"] != Json(ours.shape()))
    return text(name, " is ", gpt::numpy_name(ours.type()), " ", gpt::shape_text(ours.shape()), ", recorded is ",
                recorded["dtype"], " ", recorded["shape"]);
  const std::string_view bytes(reinterpret_cast<const char*>(ours.bytes().data()), ours.bytes().size());
  return sha256(bytes) == recorded["sha256_of_little_endian_bytes"] ? ""
                                                                    : text(name, " differs from what was recorded");
}

std::string judge_description(const std::string& ours, const Json& recorded) {
  if (ours != recorded["description"]) return text("the description is:\n", ours);
  return gpt::md5_hex(ours) == recorded["hash"] ? "" : text("the md5 of the description is ", gpt::md5_hex(ours));
}

struct Sample {
  explicit Sample(std::int64_t length) : batch(1, length) {}
  void read(const data::Dataset& dataset, std::int64_t index) { dataset.read(index, batch.sample(0)); }
  Batch batch;
};

std::vector<std::int32_t> zero_for_none(std::vector<std::int32_t> labels) {
  for (auto& label : labels) label = std::max(label, 0);
  return labels;
}

// Upstream keeps one mask for all samples when no option asks for another, so zeros of padding stay in it for ever;
// `zeros` follows that, ours begins anew each time.
std::string judge_sample(const Sample& sample, const Json& recorded, std::string* zeros) {
  const auto& b = sample.batch;
  if (recorded.contains("tokens") && listed(b.tokens) != recorded["tokens"].get<std::vector<std::int32_t>>())
    return "tokens differ";
  if (recorded.contains("labels") &&
      zero_for_none(listed(b.labels)) != recorded["labels"].get<std::vector<std::int32_t>>())
    return "labels differ";
  std::string mask;
  for (const auto m : b.loss_mask) mask += m == 1 ? '1' : '0';
  if (zeros != nullptr) {
    zeros->resize(mask.size(), '1');
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = (*zeros)[i] = std::min(mask[i], (*zeros)[i]);
  }
  if (mask != recorded["loss_mask"]) return "the loss mask differs";
  std::vector<std::int32_t> positions(b.positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  if (recorded["position_ids"] != "0..L-1") positions = recorded["position_ids"].get<std::vector<std::int32_t>>();
  if (listed(b.positions) != positions) return "positions differ";
  if (recorded.contains("first_visible_column") &&
      listed(b.document_start) != recorded["first_visible_column"].get<std::vector<std::int32_t>>())
    return "the first visible columns differ";
  return "";
}

std::string judge_samples(const data::Dataset& dataset, const Json& recorded) {
  const auto* blend = dynamic_cast<const gpt::BlendedDataset*>(&dataset);
  Sample sample(dataset.seq_length());
  std::map<std::int64_t, std::string> zeros;  // of each part
  if (!recorded.contains("samples")) return "";
  for (const auto& one : recorded["samples"]) {
    const std::int64_t part = blend ? blend->part_of(one["index"]) : -1;
    if (one.contains("dataset_id") && one["dataset_id"] != part)
      return text("sample ", one["index"], ": is of part ", part, ", recorded is ", one["dataset_id"]);
    sample.read(dataset, one["index"]);
    const auto wrong = judge_sample(sample, one, &zeros[part]);
    if (!wrong.empty()) return text("sample ", one["index"], ": ", wrong);
  }
  return "";
}

std::string first_of(std::initializer_list<std::string> problems) {
  for (const auto& problem : problems)
    if (!problem.empty()) return problem;
  return "";
}

std::string judge_dataset(const data::Dataset& dataset, const Json& recorded) {
  if (dataset.samples() != recorded["length"])
    return text("has ", dataset.samples(), " samples, recorded are ", recorded["length"]);
  if (const auto* gpt = dynamic_cast<const gpt::GptDataset*>(&dataset)) {
    if (recorded["class"] == "BlendedDataset") return "is no blend, recorded is one";
    const auto& index = gpt->index();
    return first_of({judge_description(gpt->description(), recorded),
                     judge_array("the document index", index.documents, recorded["document_index"]),
                     judge_array("the sample index", index.starts, recorded["sample_index"]),
                     judge_array("the shuffle index", index.shuffle, recorded["shuffle_index"]),
                     judge_samples(dataset, recorded)});
  }
  const auto& blend = dynamic_cast<const gpt::BlendedDataset&>(dataset);
  if (recorded["class"] != "BlendedDataset") return "is a blend, recorded is none";
  if (blend.parts().size() != recorded["datasets"].size()) return "has another number of parts than recorded";
  for (std::size_t i = 0; i < blend.parts().size(); ++i)
    if (const auto wrong = judge_dataset(*blend.parts()[i], recorded["datasets"][i]); !wrong.empty())
      return text("part ", i, ": ", wrong);
  return first_of({judge_description(blend.description(), recorded),
                   judge_array("the dataset index", blend.index().part, recorded["dataset_index"]),
                   judge_array("the dataset sample index", blend.index().part_sample, recorded["dataset_sample_index"]),
                   judge_samples(dataset, recorded)});
}

/// A file that Tessera adds to a cache, beside Megatron-LM's files.
bool is_our_own(const std::filesystem::path& file) { return file.string().ends_with("-checked.txt"); }

std::string judge_cache(const std::filesystem::path& folder, const Json& recorded) {
  std::map<std::string, std::string> expected;
  for (const auto& file : recorded) expected[file["file"]] = file["sha256"];
  for (const auto& file : list_folder(folder)) {
    if (is_our_own(file)) continue;
    const auto one = expected.find(file.filename().string());
    if (one == expected.end()) return text("the cache has ", file.filename().string(), ", recorded is no such file");
    if (sha256(read_file(file)) != one->second) return text("the cache file ", one->first, " differs");
    expected.erase(one);
  }
  return expected.empty() ? "" : text("the cache lacks ", expected.begin()->first);
}

const tokenizers::Tokenizer& tokenizer_of(const DataFolder& data, const Json& row) {
  return row["tokenizer"] == "gpt2" ? data.gpt2() : data.tokenizer_named(row["tokenizer"]);
}

std::string judge_splits(const gpt::GptSplits::Splits& splits, const Json& row) {
  for (std::size_t k = 0; k < splits.size(); ++k) {
    const auto& recorded = row["splits"][gpt::split_names[k]];
    if (recorded.is_null() != !splits[k])
      return text(gpt::split_names[k], splits[k] ? " has data, recorded is none" : " has no data, recorded is some");
    if (!splits[k]) continue;
    const auto wrong = judge_dataset(*splits[k], recorded);
    if (!wrong.empty()) return text(gpt::split_names[k], ": ", wrong);
  }
  return "";
}

/// Built and written, then mapped from the files, then from Megatron-LM's own files where they are recorded.
std::string judge_case(const DataFolder& data, const Json& row) {
  const auto& tokenizer = tokenizer_of(data, row);
  auto options = options_of(row, tokenizer);
  const std::string name = row["name"];
  options.cache_folder = data.scratch() / "cache" / name;
  const InFolder here(data.path());
  auto wrong = judge_splits(splits_of(row, tokenizer, options), row);
  if (wrong.empty() && row.contains("cache_files")) wrong = judge_cache(options.cache_folder, row["cache_files"]);
  if (!wrong.empty()) return wrong;
  std::vector<std::string> told;
  options.tell = [&](const std::string& line) { told.push_back(line); };
  for (const auto& folder : {options.cache_folder, data.path() / "gptdataset" / name}) {
    options.cache_folder = folder;
    options.may_write_caches = folder != data.path() / "gptdataset" / name;
    wrong = judge_splits(splits_of(row, tokenizer, options), row);
    if (!wrong.empty()) return text("from the files in ", folder.string(), ": ", wrong);
    if (!told.empty()) return text("the files in ", folder.string(), " are not used: ", told.front());
  }
  return "";
}

/// Where the files are without data_cache_path: of the first case, beside a copy of its tokens.
std::string judge_default_cache(const DataFolder& data) {
  const auto row = data.lines("gptdataset.jsonl").at(0);
  const auto& tokenizer = tokenizer_of(data, row);
  const auto folder = data.scratch() / "default_cache";
  std::filesystem::create_directories(folder / "tokens");
  for (const auto& file : list_folder(data.path() / "tokens"))
    std::filesystem::create_symlink(file, folder / "tokens" / file.filename());
  const InFolder here(folder);
  const auto wrong = judge_splits(splits_of(row, tokenizer, options_of(row, tokenizer)), row);
  if (!wrong.empty()) return wrong;
  std::vector<std::string> found;
  for (const auto& file : std::filesystem::recursive_directory_iterator("tokens"))
    if (!file.is_symlink() && file.is_regular_file() && !is_our_own(file)) found.push_back(file.path().string());
  std::sort(found.begin(), found.end());
  const auto recorded = data.json("default_cache_files.json").get<std::vector<std::string>>();
  return found == recorded ? "" : text("the files are ", Json(found).dump());
}

std::string judge_mask(const DataFolder& data, const Json& all, const Json& combination) {
  const auto& one = all["case"];
  const auto source = std::make_shared<indexed::IndexedDataset>(
      data.path() / text("tokens/", one["prefix"].get<std::string>(), "_text_document"));
  gpt::GptDataset::Request request;
  request.index = {*gpt::cut_split(one["split"], source->sequences())[0], one["seq"],
                   one["sizes"][0].get<std::int64_t>(), one["seed"]};
  request.eod = combination["eod"].get<std::int32_t>();
  request.options.reset_position_ids = combination["reset_position_ids"];
  request.options.reset_attention_mask = combination["reset_attention_mask"];
  request.options.eod_mask_loss = combination["eod_mask_loss"];
  const gpt::GptDataset dataset(source, request);
  Sample sample(dataset.seq_length());
  for (const auto& recorded : combination["samples"]) {
    sample.read(dataset, recorded["index"]);
    const auto wrong = judge_sample(sample, recorded, nullptr);
    if (!wrong.empty()) return text("sample ", recorded["index"], ": ", wrong);
  }
  return "";
}

std::string judge_sampler(const Json& one) {
  options::Value recipe;
  const auto set = [&](const std::string& option, const std::string& value) {
    recipe.set("dataset_config." + option, options::Value::of(value, {"golden", 0, "", 1}));
  };
  set("dataloader_type", one["type"]);
  if (one["type"] == "cyclic") set("data_sharding", one["data_sharding"].dump());
  options::Report report;
  options::Group group(recipe, "dataset_config", report);
  const std::int64_t micro_batch = one["mbs"], ranks = one["dp"], consumed = one["consumed"];
  const auto sampler = data::samplers().read(group).make({one["total"], micro_batch, ranks});
  // Without sharding upstream gives some ranks a batch more at the end of an epoch; a step needs one of every rank.
  std::size_t batches = one["batches_per_rank"][0].size();
  for (const auto& list : one["batches_per_rank"]) batches = std::min(batches, list.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::size_t b = 0; b < batches; ++b)
      for (std::int64_t row = 0; row < micro_batch; ++row) {
        const auto number = consumed + (static_cast<std::int64_t>(b) * ranks + rank) * micro_batch + row;
        const auto& recorded =
            one["batches_per_rank"][static_cast<std::size_t>(rank)][b][static_cast<std::size_t>(row)];
        if (const auto ours = sampler->index(number); ours != recorded)
          return text("rank ", rank, " batch ", b, ": sample ", ours, ", recorded is ", recorded);
      }
  return "";
}

}  // namespace

void judge_gptdataset(DataFolder& data) {
  if (!data.has("gptdataset.jsonl")) return;
  for (const auto& row : data.lines("gptdataset.jsonl"))
    data.run("gptdataset/" + row["name"].get<std::string>(), [&] { return judge_case(data, row); });
  if (data.has("default_cache_files.json"))
    data.run("gptdataset/default_cache_files", [&] { return judge_default_cache(data); });
}

void judge_masks(DataFolder& data) {
  if (!data.has("masks.json")) return;
  const auto all = data.json("masks.json");
  for (std::size_t i = 0; i < all["combinations"].size(); ++i)
    data.run(text("masks/", i), [&] { return judge_mask(data, all, all["combinations"][i]); });
}

void judge_samplers(DataFolder& data) {
  if (!data.has("samplers.json")) return;
  const auto all = data.json("samplers.json");
  for (std::size_t i = 0; i < all["samplers"].size(); ++i)
    data.run(text("samplers/", i, "_", all["samplers"][i]["type"].get<std::string>()),
             [&] { return judge_sampler(all["samplers"][i]); });
  data.run("samplers/randperm", [&]() -> std::string {
    for (const auto& one : all["torch_cpu_randperm"])
      if (data::torch_randperm(one["length"], one["seed"]) != one["randperm"].get<std::vector<std::int64_t>>())
        return text("seed ", one["seed"], " of ", one["length"], " differs");
    return "";
  });
}

}  // namespace tessera::golden
