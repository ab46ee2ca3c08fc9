#include "framework/training/setup/reference_model.h"

#include <algorithm>
#include <utility>

#include "framework/checkpoint/selected_weights.h"
#include "framework/nn/adapter.h"
#include "framework/training/setup/given_checkpoint.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/model_state.h"

namespace tessera::training {
namespace {

std::vector<nn::Parameter*> parameters_of_all(const std::vector<std::unique_ptr<model::Model>>& chunks) {
  std::vector<nn::Parameter*> all;
  for (const auto& chunk : chunks)
    for (auto* parameter : chunk->parameters()) all.push_back(parameter);
  return all;
}

/// The checkpoint of an iteration in `folder`, which can be a run folder or a folder of checkpoints.
std::filesystem::path of_iteration(const TrainingSetup& setup, const std::filesystem::path& folder,
                                   std::int64_t iteration) {
  for (const auto& prefix : {setup.options.prefix, std::string()})
    for (const auto& root : {folder, folder / "checkpoints"}) {
      auto place = root / checkpoint::checkpoint_name(prefix, iteration);
      if (std::filesystem::exists(place)) return place;
    }
  throw ConfigError(text("preference_config.refer_model_iter: ", folder.string(), " has no checkpoint of iteration ",
                         iteration, "; give one that is there, or leave refer_model_iter out"));
}

/// A vocabulary may differ in padding only.
void check_vocabulary(const checkpoint::WeightSource& source, const std::vector<checkpoint::TensorRange>& ranges,
                      std::int64_t tokens) {
  for (const auto& range : ranges) {
    const bool of_vocabulary = range.role == ParameterRole::word_embedding || range.role == ParameterRole::output_layer;
    if (!of_vocabulary || !source.has(range.name)) continue;
    const auto own = range.global_shape[0], theirs = source.shape(range.name)[0];
    if (own != theirs && !(tokens > 0 && checkpoint::differs_in_padding(source, range, tokens) && theirs >= tokens))
      throw ConfigError(text("the reference model ", source.folder().string(), " has a vocabulary of ", theirs,
                             " rows, but the model has ", own,
                             "; its log-probabilities would be those of other tokens; give a reference with the same "
                             "tokenizer"));
  }
}

bool has_adapters(const checkpoint::WeightSource& source) {
  const auto names = source.names();
  return std::any_of(names.begin(), names.end(), [](const auto& name) { return nn::is_of_adapter(name); });
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_reference(const TrainingSetup& setup, const ReferencePlace& place,
                                                             std::vector<std::string>& notes) {
  const auto folder = place.iteration ? of_iteration(setup, place.folder, *place.iteration) : place.folder;
  auto source = open_any(setup, folder, notes, place.ckpt_step, "preference_config.ref_model");
  if (source && has_adapters(*source)) {
    if (!place.began_with)
      throw ConfigError(text("preference_config.ref_model: ", source->folder().string(),
                             " has adapters, which the reference model cannot have; give the folder of a model "
                             "without adapters, or one with these merged, by `tessera merge`"));
    source = with_frozen(std::move(source), setup);
  }
  if (source) return source;
  throw ConfigError(text("the reference model: ", folder.string(),
                         " has no checkpoint; give preference_config.ref_model the folder of one"));
}

}  // namespace

ReferenceModel::ReferenceModel(std::vector<std::unique_ptr<model::Model>> chunks,
                               const parallel::ProcessGroups& processes, ReferencePlace place)
    : chunks_(std::move(chunks)),
      frozen_(frozen_weights(parameters_of_all(chunks_), processes)),
      place_(std::move(place)) {
  for (const auto& chunk : chunks_) views_.push_back(chunk.get());
}

std::vector<std::string> ReferenceModel::load(const TrainingSetup& setup) {
  std::vector<std::string> notes;
  const std::shared_ptr<const checkpoint::OpenedCheckpoint> source = open_reference(setup, place_, notes);
  auto ranges = frozen_.ranges(StateScope::held);
  check_vocabulary(*source, ranges, setup.model.tokens);
  auto all = all_of_model(setup.model, ranges);
  const auto mapped = frozen_.map(*source);
  std::erase_if(ranges, [&](const auto& range) { return mapped.contains(range.name); });
  map_laid_out(
      *source, setup, [](const auto&) { return true; }, frozen_, ranges, notes);
  std::erase_if(all, [](const auto& range) { return nn::is_of_adapter(range.name); });  // the reference has none
  const checkpoint::SelectedWeights weights(source, [](const auto& name) { return !nn::is_of_adapter(name); });
  const auto more = load_weights(weights, ranges, all, false);
  notes.insert(notes.end(), more.begin(), more.end());
  frozen_.must_be_finite(source->folder());
  notes.push_back(text("the reference model is that of ", source->folder().string(),
                       has_adapters(*source) ? ", without its adapters" : "", "; ", mapped.size(),
                       " of its parameters are mapped"));
  return notes;
}

}  // namespace tessera::training
