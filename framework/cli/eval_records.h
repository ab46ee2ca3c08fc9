#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/recipe/saved_model.h"

namespace tessera::cli {

/// Records of conversations with images that a model is evaluated on.
struct EvaluatedRecords {
  std::string files;      ///< joined by commas, as dataset_config.dataset
  std::string media_dir;  ///< folder in which images are looked for first; empty: as the model was trained
};

struct ScoredRecords {
  std::int64_t samples = 0;  ///< without dropped records and bad samples
  autograd::LossSum loss;    ///< over the tokens of answers that count
};

/// The loss of every sample, one at a time, with the weights of `trained`. Records become samples as in the training
/// of the model, if its recipe has dataset_type mllm, else by the defaults of that type and the image processor of its
/// folder; columns that no record has are not missed. Bad samples (images that cannot be read) are told and left out,
/// as many as dataset_config.bad_sample_limit of the training allows. `tape` must not record. `progress` gets the
/// samples done and in all. Throws ConfigError: a model without vision tower or tokenizer, records that cannot be used,
/// more bad samples.
ScoredRecords score_records(const recipe::TrainedModel& trained, const EvaluatedRecords& records, autograd::Tape& tape,
                            const std::function<void(std::int64_t done, std::int64_t all)>& progress);

}  // namespace tessera::cli
