// What a run reads and in which order: dataset indices, samples, masks, samplers.

#include <algorithm>

#include "framework/data/gpt_dataset.h"
#include "framework/data/indexed_dataset.h"
#include "framework/data/legacy_random.h"
#include "framework/data/mock_source.h"
#include "tests/golden/data_cases.h"
#include "tests/golden/sha256.h"

namespace tessera::golden {
namespace {

// The only prefix of a blend; throws NotSupported when there are several or weights.
std::string single_prefix(const Json& blend) {
  if (blend[0].size() != 1 || !blend[1].is_null()) throw NotSupported{"blending datasets is not built yet"};
  return blend[0][0];
}

struct OpenCase {
  const DataFolder& data;
  const Json& row;
  const Tokenizer& tokenizer;

  std::shared_ptr<const TokenSource> source(const Json& blend) const {
    if (row["mock"]) return std::make_shared<MockSource>(tokenizer.vocab_size(), tokenizer.eod());
    return std::make_shared<IndexedDataset>(data.path() / single_prefix(blend));
  }

  GptDataset::Request request(std::size_t split, const SequenceRange& range) const {
    GptDataset::Request request;
    request.index.range = range;
    request.index.seq_length = row["sequence_length"];
    if (!row["sizes"][split].is_null()) request.index.samples = row["sizes"][split].get<std::int64_t>();
    request.index.seed = row["random_seed"];
    request.index.extra_token = row["add_extra_token_to_sequence"];
    request.index.drop_last = split != 1 || row["drop_last_partial_validation_sequence"];
    request.vocab_size = tokenizer.vocab_size();
    request.eod = tokenizer.eod();
    return request;
  }
};

template <class Item>
std::string judge_array(const char* name, const std::vector<Item>& ours, const Json& recorded) {
  const std::string_view bytes(reinterpret_cast<const char*>(ours.data()), ours.size() * sizeof(Item));
  return sha256(bytes) == recorded["sha256_of_little_endian_bytes"] ? ""
                                                                    : text(name, " differs from what was recorded");
}

struct Sample {
  explicit Sample(std::int64_t length) : batch(1, length) {}
  void read(const Dataset& dataset, std::int64_t index) { dataset.read(index, batch.sample(0)); }
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
  if (recorded.contains("tokens") && b.tokens != recorded["tokens"].get<std::vector<std::int32_t>>())
    return "tokens differ";
  if (recorded.contains("labels") && zero_for_none(b.labels) != recorded["labels"].get<std::vector<std::int32_t>>())
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
  if (b.positions != positions) return "positions differ";
  if (recorded.contains("first_visible_column") &&
      b.document_start != recorded["first_visible_column"].get<std::vector<std::int32_t>>())
    return "the first visible columns differ";
  return "";
}

std::string judge_dataset(const GptDataset& dataset, const Json& recorded) {
  if (dataset.samples() != recorded["length"])
    return text("has ", dataset.samples(), " samples, recorded are ", recorded["length"]);
  const auto& index = dataset.index();
  for (const auto& wrong : {judge_array("the document index", index.documents, recorded["document_index"]),
                            judge_array("the sample index", index.starts, recorded["sample_index"]),
                            judge_array("the shuffle index", index.shuffle, recorded["shuffle_index"])})
    if (!wrong.empty()) return wrong;
  Sample sample(dataset.seq_length());
  std::string zeros;
  if (!recorded.contains("samples")) return "";
  for (const auto& one : recorded["samples"]) {
    sample.read(dataset, one["index"]);
    const auto wrong = judge_sample(sample, one, &zeros);
    if (!wrong.empty()) return text("sample ", one["index"], ": ", wrong);
  }
  return "";
}

std::string judge_case(const DataFolder& data, const Json& row) {
  const bool per_split = !row["blend_per_split"].is_null();
  if (!row["mock"]) {
    if (!per_split) single_prefix(row["blend"]);
    for (const auto& blend : per_split ? row["blend_per_split"] : Json::array())
      if (!blend.is_null()) single_prefix(blend);
  }
  const auto& tokenizer = row["tokenizer"] == "gpt2" ? data.gpt2() : data.tokenizer_named(row["tokenizer"]);
  const OpenCase one{data, row, tokenizer};
  const std::array<std::string, 3> names = {"train", "valid", "test"};
  for (std::size_t k = 0; k < 3; ++k) {
    const auto& recorded = row["splits"][names[k]];
    const auto& blend = per_split ? row["blend_per_split"][k] : row["blend"];
    std::optional<SequenceRange> range;
    std::shared_ptr<const TokenSource> source;
    if (!per_split || !blend.is_null()) {
      source = one.source(blend);
      range = per_split ? SequenceRange{0, source->sequences()} : cut_split(row["split"], source->sequences())[k];
    }
    if (recorded.is_null() != !range)
      return names[k] + (range ? " has data, recorded is none" : " has no data, recorded is some");
    if (!range) continue;
    const auto wrong = judge_dataset(GptDataset(source, one.request(k, *range)), recorded);
    if (!wrong.empty()) return names[k] + ": " + wrong;
  }
  return "";
}

std::string judge_mask(const DataFolder& data, const Json& all, const Json& combination) {
  const auto& one = all["case"];
  const auto source = std::make_shared<IndexedDataset>(
      data.path() / text("tokens/", one["prefix"].get<std::string>(), "_text_document"));
  GptDataset::Request request;
  request.index = {*cut_split(one["split"], source->sequences())[0], one["seq"], one["sizes"][0].get<std::int64_t>(),
                   one["seed"]};
  request.eod = combination["eod"].get<std::int32_t>();
  request.options.reset_position_ids = combination["reset_position_ids"];
  request.options.reset_attention_mask = combination["reset_attention_mask"];
  request.options.eod_mask_loss = combination["eod_mask_loss"];
  const GptDataset dataset(source, request);
  Sample sample(dataset.seq_length());
  for (const auto& recorded : combination["samples"]) {
    sample.read(dataset, recorded["index"]);
    const auto wrong = judge_sample(sample, recorded, nullptr);
    if (!wrong.empty()) return text("sample ", recorded["index"], ": ", wrong);
  }
  return "";
}

std::string judge_sampler(const Json& one) {
  Value recipe;
  const auto set = [&](const std::string& option, const std::string& value) {
    recipe.set("dataset_config." + option, Value::of(value, {"golden", 0, "", 1}));
  };
  set("dataloader_type", one["type"]);
  if (one["type"] == "cyclic") set("data_sharding", one["data_sharding"].dump());
  Report report;
  Group group(recipe, "dataset_config", report);
  const std::int64_t micro_batch = one["mbs"], ranks = one["dp"], consumed = one["consumed"];
  const auto sampler = samplers().read(group).make({one["total"], micro_batch, ranks});
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
      if (torch_randperm(one["length"], one["seed"]) != one["randperm"].get<std::vector<std::int64_t>>())
        return text("seed ", one["seed"], " of ", one["length"], " differs");
    return "";
  });
}

}  // namespace tessera::golden
