#pragma once

#include <memory>

#include "framework/comm/world.h"
#include "framework/recipe/open_data.h"
#include "framework/training/setup/training_setup.h"

namespace tessera::recipe {

/// Assigns the ranks of `world` to their process groups in a run of this recipe. Collective: every rank must call it.
/// Throws ConfigError if the number of ranks does not fit the recipe, or ranks have read different recipes.
parallel::ProcessGroups arrange(const Recipe& recipe, const comm::World& world);

/// Builds everything that training needs: the model part, optimizer and schedule of this rank, with `data`, the result
/// of open_data. `recipe` was read without mistakes. Throws ConfigError for mistakes that only construction can find.
training::TrainingSetup build(const Recipe& recipe, const parallel::ProcessGroups& processes, training::RunData data);
/// Builds everything for a run with one rank, and opens its data. Throws ConfigError as check_ranks, open_data and the
/// function above do.
training::TrainingSetup build(const Recipe& recipe);

/// Number of rows of the vocabulary, padding included. `tokenizer` may be null if the recipe gives vocab_size. Throws
/// ConfigError if the tokenizer has more tokens than vocab_size.
std::int64_t vocabulary(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer);
/// The arguments with which the recipe's dataset is made, for a run of `iterations` steps on `replicas` data-parallel
/// ranks. `tokenizer` may be null; it must outlive the result.
data::DataParts data_parts(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer, std::int64_t iterations,
                           int replicas = 1);
/// Makes the schedules of learning rate and weight decay for a run of `length`, at its beginning.
std::unique_ptr<schedule::OptimizerSchedule> build_schedule(const Recipe& recipe, const schedule::RunLength& length);
/// The arguments of the whole, unsharded model of a recipe, with `rows` rows of the vocabulary.
model::ModelParts whole_model(const Recipe& recipe, std::int64_t rows);
/// Makes the whole, unsharded model of a recipe, without memory for its weights. `tokenizer` may be null if the recipe
/// gives vocab_size.
std::unique_ptr<model::Model> build_model(const Recipe& recipe, const tokenizers::Tokenizer* tokenizer);
using Chunks = std::vector<std::unique_ptr<model::Model>>;
/// Makes the chunks (virtual stages) of pipeline stage `stage` of `plan`, with the shard of them that rank `tensor`
/// holds, without memory for weights. A rank of a run makes its own stage; layout_figures makes every stage. `context`
/// does not change what the chunks hold; `expert` selects the experts. `rows`: see vocabulary().
Chunks build_stage(const Recipe& recipe, std::int64_t rows, const parallel::LayerPlan& plan, std::int64_t stage,
                   const nn::TensorRank& tensor, const parallel::ContextLayout& context = {},
                   const nn::ExpertRank& expert = {});
/// The chunks of the reference model: those of build_stage without adapters, with all parameters frozen.
Chunks build_reference_stage(const Recipe& recipe, std::int64_t rows, const parallel::LayerPlan& plan,
                             std::int64_t stage, const nn::TensorRank& tensor, const parallel::ContextLayout& context,
                             const nn::ExpertRank& expert);

/// Which parameters the recipe trains; build_model and build_stage freeze the others.
training::TrainedNames trained_names(const Recipe& recipe);
/// See training::ModelSetup::frozen_chunks.
std::int64_t frozen_chunks(const Recipe& recipe, const parallel::LayerPlan& plan);

/// Number of steps of a run of training_config.epochs passes over a training split of `samples` samples, on `replicas`
/// data-parallel ranks. Throws ConfigError if the split has fewer samples than one step.
std::int64_t epoch_iterations(const Recipe& recipe, std::int64_t samples, std::int64_t replicas);
/// The checkpoint in `folder`, or if that was saved without its frozen parameters its base, to ask which weights will
/// be mapped: checksums are not verified. With qlora the folder that an earlier run has made of it, if there is one.
/// Null: there is none, or it cannot be read, which the run says.
std::unique_ptr<checkpoint::OpenedCheckpoint> mapped_source(const Recipe& recipe, const std::string& folder);
/// How a run maps its frozen parameters from mapped_source(load_checkpoint), also those that are still to be quantised.
training::FrozenWeights::Ways ways_of_base(const Recipe& recipe, const checkpoint::OpenedCheckpoint& source);
/// Size of all weights of `model`, in bytes: trained ones in fp32, frozen ones as they are stored. Without those that
/// are mapped from `mapped_from`; null: from nowhere.
std::int64_t weight_bytes(model::Model& model, const checkpoint::WeightSource* mapped_from = nullptr);

}  // namespace tessera::recipe
