#pragma once

#include "framework/data/indexed/no_tokens.h"
#include "framework/parallel/process_groups.h"
#include "framework/recipe/recipe.h"
#include "framework/training/run_data.h"

namespace tessera::recipe {

/// The data of one of `replicas` data-parallel ranks, in this process alone. Throws ConfigError for files that are
/// missing or damaged, a vocabulary that is too small for the tokenizer, and data that does not suffice. `tell` gets
/// lines for the user: of index files that are built, waited for or not usable; empty: nobody is told.
training::RunData open_data(const Recipe& recipe, std::int64_t replicas, const data::TellLine& tell = {});

/// Whether a pipeline stage has the embedding or the loss, and so needs tokens or labels.
bool needs_tokens(const parallel::LayerPlan& plan, std::int64_t stage);

/// The data of this rank. Pipeline stages that need no tokens open no data, unless positions or document boundaries
/// depend on tokens; they learn the number of samples from the others. Collective. Throws on all ranks if it throws on
/// one: what the function above throws.
training::RunData open_data(const Recipe& recipe, const parallel::ProcessGroups& processes);

/// The mesh of a run of so many ranks. Throws ConfigError if their number does not fit the recipe.
parallel::Mesh mesh_of(const Recipe& recipe, std::int64_t ranks);

/// What a step reads.
struct StepSamples {
  std::int64_t consumed = 0;       ///< samples of the run before it
  std::int64_t samples = 0;        ///< of all ranks
  std::int64_t micro_batches = 0;  ///< of each rank
  bool skipped = false;            ///< named by iterations_to_skip: its samples are passed over
};
/// The samples of training step `step`, counted from 1 as in the log, in a run of `iterations` steps on `replicas`
/// data-parallel ranks from its beginning. Throws ConfigError if the run has no such step.
StepSamples samples_of_step(const Recipe& recipe, std::int64_t replicas, std::int64_t iterations, std::int64_t step);

}  // namespace tessera::recipe
