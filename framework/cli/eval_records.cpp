#include "framework/cli/eval_records.h"

#include <array>

#include "framework/base/error.h"
#include "framework/cli/trained_pictures.h"
#include "framework/data/bad_sample.h"
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
  if (trained.tokenizer) recipe::must_share_placeholders(tower, options, *trained.tokenizer);
  data::DataParts parts;
  parts.seq_length = trained.recipe.size.seq_length;
  parts.asked.train = data::one_epoch;
  parts.vocab_size = trained.model->vocabulary();
  parts.tokenizer = trained.tokenizer.get();
  parts.warn = [](const std::string& line) { records_logger.warning("eval: " + line); };
  return std::move(multimodal::open_mllm(options, parts, trained_pictures(trained, tower).processor)->train);
}

/// Counts the records that cannot be used.
class BadRecords {
 public:
  /// `limit`: dataset_config.bad_sample_limit of the model's training.
  explicit BadRecords(std::int64_t limit) : limit_(limit) {}

  /// Reads the sample into `batch`; false: it is bad, which was told. Throws ConfigError above the limit.
  bool can_read(const data::Dataset& data, std::int64_t sample, Batch& batch) {
    try {
      data::fit(data, std::array{sample}, {}, batch);
      data.read(sample, batch.sample(0));
      return true;
    } catch (const data::BadSampleError& error) {
      note(error.what());
    } catch (const IoError& error) {
      note(error.what());
    }
    return false;
  }
  void tell(std::int64_t samples) const {
    if (count_ > 0)
      records_logger.warning(text("eval: ", count_, " of ", samples, " samples cannot be used and have no loss"));
  }

 private:
  void note(const std::string& why) {
    if (++count_ > limit_)
      throw ConfigError(text("eval: ", why, limit_ == 0 ? "" : text("; it is bad sample ", count_),
                             "; dataset_config.bad_sample_limit of the model's training is ", limit_,
                             ": mend the record or remove it"));
    records_logger.warning(text("eval: a bad sample is left out: ", why));
  }

  std::int64_t limit_, count_ = 0;
};

}  // namespace

ScoredRecords score_records(const recipe::TrainedModel& trained, const EvaluatedRecords& records, autograd::Tape& tape,
                            const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  if (trained.recipe.architecture->vision() == nullptr)
    throw ConfigError(text("eval: ", trained.folder.string(),
                           " has no vision tower, so it reads no records with images; give --text or --data"));
  const auto data = open_records(trained, records, tower_that_sees(trained));
  Batch batch(data->fields(), 1, data->seq_length());
  ScoredRecords scored;
  BadRecords bad(trained.recipe.batch.bad_sample_limit);
  for (std::int64_t i = 0; i < data->samples(); ++i) {
    if (bad.can_read(*data, i, batch)) {
      data::write_ids(i, batch.sample(0));
      scored.loss += trained.model->loss(tape, batch.view(), {}).total;
      tape.clear();
      ++scored.samples;
    }
    progress(i + 1, data->samples());
  }
  bad.tell(data->samples());
  if (scored.loss.count == 0)
    throw ConfigError(text("eval: ", records.files, ": no token of its ", scored.samples, " samples has a loss"));
  return scored;
}

}  // namespace tessera::cli
