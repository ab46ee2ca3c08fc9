#include "framework/cli/eval_records.h"

#include <array>
#include <optional>

#include "framework/base/error.h"
#include "framework/cli/visual_prompt.h"
#include "framework/data/sampler.h"
#include "framework/log/log.h"
#include "framework/multimodal/mllm_dataset.h"
#include "framework/recipe/open_data.h"

namespace tessera::cli {
namespace {

const log::Logger records_logger("eval");

/// The options of the model's training, with these records and without its validation data.
std::unique_ptr<data::Dataset> open_records(const recipe::TrainedModel& trained, const EvaluatedRecords& records,
                                            const model::VisionOptions& tower) {
  const auto* trained_with = trained.recipe.dataset.options<multimodal::MllmOptions>();
  auto options = trained_with ? *trained_with : multimodal::MllmOptions{};
  options.dataset = records.files;
  if (!records.media_dir.empty()) options.media_dir = records.media_dir;
  options.patch_size = tower.patch_size;
  options.temporal_patch_size = tower.temporal_patch_size;
  options.spatial_merge_size = tower.spatial_merge_size;
  options.max_samples = {};
  options.val_dataset = {};
  options.val_rate = 0;
  std::optional<images::ProcessorOptions> processor;
  if (!trained_with) processor = processor_of(trained.base, tower);
  if (trained.tokenizer) recipe::must_share_placeholders(tower, options, *trained.tokenizer);
  data::DataParts parts;
  parts.seq_length = trained.recipe.size.seq_length;
  parts.asked.train = data::one_epoch;
  parts.vocab_size = trained.model->vocabulary();
  parts.tokenizer = trained.tokenizer.get();
  parts.warn = [](const std::string& line) { records_logger.warning("eval: " + line); };
  return std::move(multimodal::open_mllm(options, parts, processor)->train);
}

}  // namespace

ScoredRecords score_records(const recipe::TrainedModel& trained, const EvaluatedRecords& records, autograd::Tape& tape,
                            const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  const auto* tower = trained.recipe.architecture->vision();
  if (tower == nullptr)
    throw ConfigError(text("eval: ", trained.folder.string(),
                           " has no vision tower, so it reads no records with images; give --text or --data"));
  const auto data = open_records(trained, records, *tower);
  Batch batch(data->fields(), 1, data->seq_length());
  ScoredRecords scored;
  while (scored.samples < data->samples()) {
    const std::array sample = {scored.samples};
    data::fit(*data, sample, {}, batch);
    data->read(sample[0], batch.sample(0));
    data::write_ids(sample[0], batch.sample(0));
    scored.loss += trained.model->loss(tape, batch.view(), {}).total;
    tape.clear();
    progress(++scored.samples, data->samples());
  }
  if (scored.loss.count == 0)
    throw ConfigError(text("eval: ", records.files, ": no token of its ", scored.samples, " samples has a loss"));
  return scored;
}

}  // namespace tessera::cli
