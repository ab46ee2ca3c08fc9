#pragma once

#include "framework/data/no_tokens.h"
#include "framework/parallel/process_groups.h"
#include "framework/recipe/recipe.h"
#include "framework/training/setup/run_data.h"

namespace tessera::multimodal {
struct MllmOptions;
}

namespace tessera::recipe {

/// Throws ConfigError, with all that differ, unless the tokens that stand for images and videos in the data are those
/// that the model replaces by features. Of data without a column of videos, only those of images are compared.
void must_share_placeholders(const model::VisionOptions& tower, const multimodal::MllmOptions& data,
                             const tokenizers::Tokenizer& tokenizer);

/// Opens the data of one of `replicas` data-parallel ranks, without communication. `tell` receives lines for the user,
/// about index files that are built, waited for or unusable, `warn` warnings about what the run will not learn from the
/// data; empty: no lines. Throws ConfigError for files that are missing or damaged, a vocabulary that is too small for
/// the tokenizer, and too little data; and as must_share_placeholders.
training::RunData open_data(const Recipe& recipe, std::int64_t replicas, const data::TellLine& tell = {},
                            const data::TellLine& warn = {});

/// Whether pipeline stage `stage` has the embedding, the beginning of another tower or the loss, and so may need tokens
/// or labels.
bool needs_tokens(const parallel::LayerPlan& plan, std::int64_t stage);

/// Opens the data of this rank. Collective. Pipeline stages that need no tokens open no data, unless positions or
/// document boundaries depend on tokens; they receive the number of samples from other stages. If it throws on one
/// rank, it throws on all. Throws as the function above does.
training::RunData open_data(const Recipe& recipe, const parallel::ProcessGroups& processes);

/// The mesh of a run with `ranks` ranks. Throws ConfigError if their number does not fit the recipe.
parallel::Mesh mesh_of(const Recipe& recipe, std::int64_t ranks);

/// The samples that a step reads.
struct StepSamples {
  std::int64_t consumed = 0;       ///< samples that earlier steps of the run consumed
  std::int64_t samples = 0;        ///< of this step on all ranks
  std::int64_t micro_batches = 0;  ///< of this step on each rank
  bool skipped = false;            ///< iterations_to_skip names the step: its samples are not trained on
};
/// The samples of training step `step`, counted from 1 as in the log, in a run of `iterations` steps on `replicas`
/// data-parallel ranks from its beginning. Throws ConfigError if the run has no such step.
StepSamples samples_of_step(const Recipe& recipe, std::int64_t replicas, std::int64_t iterations, std::int64_t step);

}  // namespace tessera::recipe
