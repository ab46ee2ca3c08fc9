// The dataset type mllm: conversations with images and videos.

#include <algorithm>

#include "framework/base/error.h"
#include "framework/multimodal/mllm_dataset.h"
#include "framework/multimodal/mllm_options.h"

namespace tessera::multimodal {
namespace {

class MllmMaker {
 public:
  MllmMaker(const MllmOptions& options, const data::DataParts& parts, RowOptions rows, bool needs_columns)
      : options_(options),
        parts_(parts),
        needs_columns_(needs_columns),
        encoder_(std::make_shared<RowEncoder>(*parts.tokenizer, std::move(rows))) {}

  std::shared_ptr<const MllmRows> open(const std::string& list, const std::optional<std::int64_t>& most) const {
    const auto names = files_of_list(list);
    if (joined(names, ",") != list) tell(text("blanks around the names of files in '", list, "' are left out"));
    auto files = std::make_shared<RecordFiles>(names, most);
    if (most && files->records() < *most)
      tell(text("there are ", files->records(), " records, fewer than the ", *most, " of max_samples: all are taken"));
    if (needs_columns_) must_have_columns(*files, encoder_->names());
    auto rows = std::make_shared<MllmRows>(files, encoder_, options_.preprocessing_num_workers,
                                           options_.skip_unreadable_images, packing_of(options_, parts_.seq_length));
    report(rows->counts());
    if (rows->samples() == 0)
      throw ConfigError(text(list, ": no record is left of ", files->records(), "; the first one that was dropped is ",
                             rows->counts().first_dropped));
    return rows;
  }
  std::unique_ptr<data::Dataset> part(const std::shared_ptr<const MllmRows>& rows, std::int64_t begin, std::int64_t end,
                                      std::int64_t asked) const {
    if (asked == 0 || begin >= end) return nullptr;
    return std::make_unique<MllmDataset>(rows, begin, end, parts_.seq_length, parts_.vocab_size);
  }

 private:
  void tell(const std::string& line) const {
    if (parts_.warn) parts_.warn(line);
  }
  void report(const MllmCounts& counts) const {
    std::int64_t sum = 0;
    std::string reasons;
    for (const auto& [reason, count] : counts.dropped) {
      sum += count;
      reasons += text(reasons.empty() ? "" : "; ", count, ": ", reason);
    }
    if (sum > 0)
      tell(
          text(sum, " of ", counts.records, " records are dropped (", reasons, "); the first: ", counts.first_dropped));
    if (counts.unreadable > 0)
      tell(text(counts.unreadable, " of ", counts.records,
                " records have an image that cannot be read; they are bad samples, see bad_sample_limit"));
    if (counts.as_written > 0)
      tell(text(counts.as_written, " image files are not in media_dir '", options_.media_dir,
                "'; their paths are used as written"));
  }

  const MllmOptions& options_;
  const data::DataParts& parts_;
  bool needs_columns_;
  std::shared_ptr<const RowEncoder> encoder_;
};

std::unique_ptr<data::DataSplits> make_mllm(const MllmOptions& options, data::DataParts parts) {
  return open_mllm(options, parts);
}

BatchFields fields_of_mllm(const data::DatasetRegistry::Choice& choice) {
  const auto* options = choice.options<MllmOptions>();
  return mllm_fields(sizes_of_patches(options ? *options : MllmOptions{}));
}

}  // namespace

std::unique_ptr<data::DataSplits> open_mllm(const MllmOptions& o, const data::DataParts& parts,
                                            const std::optional<images::ProcessorOptions>& evaluated) {
  if (o.dataset.empty()) throw ConfigError("dataset_type mllm needs dataset: files of records with messages");
  if (parts.tokenizer == nullptr)
    throw ConfigError("dataset_type mllm needs a tokenizer; set tokenizer_type and the files of the model's tokenizer");
  auto encoding = row_options(o, parts.seq_length, evaluated);
  const MllmMaker maker(o, parts, std::move(encoding), !evaluated);
  const auto rows = maker.open(o.dataset, o.max_samples);
  const auto held_out = static_cast<std::int64_t>(static_cast<double>(rows->samples()) * o.val_rate);
  const auto trained = rows->samples() - held_out;
  if (o.val_rate > 0 && held_out == 0 && parts.asked.valid != 0 && parts.warn)
    parts.warn(text("val_rate ", o.val_rate, " of ", rows->samples(),
                    " samples holds out none, so nothing is evaluated; give a val_rate above 1/", rows->samples(),
                    ", or val_dataset"));
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = maker.part(rows, 0, trained, parts.asked.train);
  if (!o.val_dataset) {
    splits->valid = maker.part(rows, trained, rows->samples(), parts.asked.valid);
  } else if (parts.asked.valid != 0) {
    const auto valid = maker.open(*o.val_dataset, o.val_max_samples);
    splits->valid = maker.part(valid, 0, valid->samples(), parts.asked.valid);
  }
  return splits;
}

void register_mllm(data::DatasetRegistry& registry) {
  registry.add("mllm", make_mllm, "Conversations with images and videos, as MindSpeed-MM trains Qwen2-VL.",
               {"huggingface"});
  registry.declare_fields("mllm", fields_of_mllm);
}

}  // namespace tessera::multimodal
