#pragma once

#include <memory>

#include "framework/comm/world.h"
#include "framework/recipe/open_data.h"
#include "framework/training/training_setup.h"

namespace tessera::recipe {

/// Where each process of the world stands in a run of this recipe. Collective. Throws ConfigError when the number of
/// processes does not fit the recipe, or processes have read different recipes.
parallel::ProcessGroups arrange(const Recipe& recipe, const comm::World& world);

/// Everything that training needs from a recipe that was read without mistakes: this rank's part of it, with the data
/// that open_data gave. Throws ConfigError for what only constructing it can find.
training::TrainingSetup build(const Recipe& recipe, const parallel::ProcessGroups& processes, training::RunData data);
/// The same for a run of one process; opens the data.
training::TrainingSetup build(const Recipe& recipe);

/// Rows of the vocabulary, padding included. `tokenizer` may be null when the recipe gives vocab_size. Throws
/// ConfigError when the tokenizer has more tokens than that.
std::int64_t vocabulary(const Recipe& recipe, const data::Tokenizer* tokenizer);
/// What the recipe's dataset is to be made from, for a run of so many steps.
data::DataParts data_parts(const Recipe& recipe, const data::Tokenizer* tokenizer, std::int64_t iterations,
                           int replicas = 1);
/// The schedules of a run of that length, at their beginning.
std::unique_ptr<schedule::OptimizerSchedule> build_schedule(const Recipe& recipe, const schedule::RunLength& length);
/// The whole, unsharded model of a recipe, without memory for its weights. `tokenizer` may be null if the recipe has
/// vocab_size.
std::unique_ptr<model::Model> build_model(const Recipe& recipe, const data::Tokenizer* tokenizer);
/// The chunks of one pipeline stage of `plan`, with the part of them that the tensor-parallel rank `tensor` holds;
/// without memory for weights. A rank of a run constructs its own; layout_figures constructs those of every stage.
/// `context` does not change what they hold; `expert` says which experts. `rows`: see vocabulary().
std::vector<std::unique_ptr<model::Model>> build_stage(const Recipe& recipe, std::int64_t rows,
                                                       const parallel::LayerPlan& plan, std::int64_t stage,
                                                       const nn::TensorRank& tensor,
                                                       const parallel::ContextLayout& context = {},
                                                       const nn::ExpertRank& expert = {});

/// Steps of a run that is counted in passes over a training split of so many samples. Throws ConfigError when a pass
/// has none.
std::int64_t epoch_iterations(const Recipe& recipe, std::int64_t samples, std::int64_t replicas);
/// Of all weights of a model in fp32.
std::int64_t weight_bytes(model::Model& model);

}  // namespace tessera::recipe
