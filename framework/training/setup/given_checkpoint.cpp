#include "framework/training/setup/given_checkpoint.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "framework/checkpoint/find.h"
#include "framework/checkpoint/laid_out_weights.h"
#include "framework/comm/together.h"
#include "framework/nn/adapter.h"
#include "framework/training/setup/strictness.h"
#include "framework/training/setup/upcycling.h"

namespace tessera::training {
namespace {

/// What load_checkpoint may name: one checkpoint, or a folder of them; what a conversion wrote has no prefix.
std::vector<checkpoint::FoundCheckpoint> checkpoints_at(const TrainingSetup& setup,
                                                        const std::filesystem::path& given) {
  const auto& formats = setup.documents.formats;
  const auto named = checkpoint::iteration_in_name(std::filesystem::absolute(given)).value_or(0);
  if (std::filesystem::exists(given / "manifest.json")) return {{given, named}};
  if (const auto* format = formats.of(given); format != nullptr && format->find(given) == given)
    return {{given, named, format}};
  std::vector<checkpoint::FoundCheckpoint> all;
  for (const auto& prefix : {setup.options.prefix, std::string()})
    for (const auto& folder : {given, given / "checkpoints"})
      if (all.empty())
        for (const auto& [path, iteration] : checkpoint::list_checkpoints(folder, prefix))
          if (folder != given || formats.of(path) == nullptr) all.push_back({path, iteration});
  for (auto& found : formats.list(given)) all.push_back(std::move(found));
  checkpoint::sort_newest_first(all, given);
  return all;
}

/// Nothing where the run's own folder has none yet and may start from scratch.
void refuse_missing(const TrainingOptions& o, const std::filesystem::path& given, const std::string& option) {
  if (!o.exit_on_missing_checkpoint && is_same_folder(given, o.output_dir)) return;
  throw ConfigError(text(option, ": no checkpoint named ", checkpoint::checkpoint_name(o.prefix, 0), " or later under ",
                         given.string(),
                         "; give a checkpoint folder, or a folder that holds some (see training_config.prefix)"));
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_given(const checkpoint::FoundCheckpoint& found,
                                                         const TrainingSetup& setup) {
  if (found.format != nullptr)
    return found.format->open_described(found.folder, setup.documents.mappings, setup.documents.recipe);
  auto native = checkpoint::Checkpoint::open(found.folder);
  const auto& o = setup.options;
  const bool resumes = o.resume_training != Resume::never && native.blobs().count(checkpoint::progress_blob) != 0;
  return std::make_unique<checkpoint::NativeCheckpoint>(std::move(native), !resumes || o.crc_check);
}

/// Where a checkpoint may be that has certain weights.
struct Place {
  std::filesystem::path path;
  std::optional<std::int64_t> step;  ///< of those in `path`; none: the newest
};

/// Where the base of a checkpoint may be: what the recipe names now, then what was recorded. A recorded checkpoint in
/// the folder that the recipe names is the one that is meant.
std::vector<Place> places_of(const checkpoint::FrozenBase& base, const TrainingSetup& setup) {
  const Place recorded = {base.name, {}};
  const auto& named = setup.options.load_checkpoint;
  if (!named) return {recorded};
  const auto there = checkpoints_at(setup, *named);
  if (std::any_of(there.begin(), there.end(), [&](const auto& one) { return is_same_folder(one.folder, base.name); }))
    return {recorded};
  return {{*named, step_of_given(setup)}, recorded};
}

/// The checkpoint with the frozen parameters that `given` was saved without.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_base(const checkpoint::OpenedCheckpoint& given,
                                                        const checkpoint::FrozenBase& base,
                                                        const TrainingSetup& setup) {
  std::string why = "that folder has no checkpoint;";
  for (const auto& place : places_of(base, setup)) {
    try {
      std::vector<std::string> not_told;
      if (auto opened = with_frozen(open_any(setup, place.path, not_told, place.step), setup)) return opened;
    } catch (const ConfigError& error) {
      why = text("that cannot be read: ", error.what(), "\n ");
    }
  }
  throw ConfigError(text(given.folder().string(), ": ", given.about_left_out(), ", and ", why,
                         " give training_config.load_checkpoint the folder that has them"));
}

constexpr const char *score_head = "score.weight", *output_layer = "output_layer.weight";

/// Names of the weights of `wanted` that `source` has in a storage type, and that type.
std::map<std::string, std::string_view> packed_of(const checkpoint::WeightSource& source,
                                                  const std::vector<checkpoint::TensorRange>& wanted) {
  std::map<std::string, std::string_view> packed;
  for (const auto& range : wanted)
    if (const auto type = source.has(range.name) ? source.storage_type(range.name) : std::string_view(); !type.empty())
      packed[range.name] = type;
  return packed;
}

/// Whether `source` is a language model whose weights a model with a score head, `wanted`, begins with.
bool gets_score_head(const checkpoint::WeightSource& source, const std::vector<checkpoint::TensorRange>& wanted) {
  const auto is_score = [](const auto& range) { return range.name == score_head; };
  return std::any_of(wanted.begin(), wanted.end(), is_score) && !source.has(score_head);
}

}  // namespace

std::vector<checkpoint::TensorRange> without_score_head(const checkpoint::WeightSource& source,
                                                        std::vector<checkpoint::TensorRange> weights, bool known) {
  if (!gets_score_head(source, weights)) return weights;
  std::erase_if(weights, [](const auto& range) { return range.name == score_head; });
  if (known && source.has(output_layer))
    weights.push_back({.name = output_layer, .global_shape = source.shape(output_layer), .offsets = {}, .tensor = {}});
  return weights;
}

std::vector<checkpoint::FoundCheckpoint> of_step(std::vector<checkpoint::FoundCheckpoint> all, std::int64_t step,
                                                 const std::string& place) {
  std::string there;
  for (const auto& found : all)
    if (found.unfinished.empty()) there += text(there.empty() ? "" : ", ", found.iteration);
  std::erase_if(all, [&](const auto& found) { return found.iteration != step || !found.unfinished.empty(); });
  if (all.empty())
    throw ConfigError(
        text("training_config.ckpt_step is ", step, ", but ", place, " has no checkpoint of that iteration; ",
             there.empty() ? "it has none" : text("it has those of ", there), "; give another, or leave it out"));
  return all;
}

bool is_same_folder(const std::filesystem::path& place, const std::filesystem::path& other) {
  const auto real = [](const std::filesystem::path& folder) { return std::filesystem::weakly_canonical(folder / ""); };
  return real(place) == real(other);
}

std::unique_ptr<checkpoint::OpenedCheckpoint> open_any(const TrainingSetup& setup, const std::filesystem::path& place,
                                                       std::vector<std::string>& notes,
                                                       std::optional<std::int64_t> step, const std::string& option) {
  auto all = checkpoints_at(setup, place);
  if (all.empty()) {
    refuse_missing(setup.options, place, option);
    return nullptr;
  }
  if (step) all = of_step(std::move(all), *step, place.string());
  std::exception_ptr newest;
  for (const auto& found : all) {
    try {
      auto opened = open_given(found, setup);
      if (auto note = step ? "" : checkpoint::about_tracker(place, all, found); !note.empty())
        notes.push_back(std::move(note));
      for (auto& note : opened->notes_of_files()) notes.push_back(std::move(note));  // others are about the recipe
      return opened;
    } catch (const Error& error) {
      if (found.format == nullptr || dynamic_cast<const IoError*>(&error) != nullptr) throw;
      if (!newest) newest = std::current_exception();
      notes.push_back(text("checkpoint ", found.folder.string(), " cannot be read: ", error.what()));
    }
  }
  std::rethrow_exception(newest);
}

std::optional<std::int64_t> step_of_given(const TrainingSetup& setup) {
  return setup.model.weights_alone ? std::nullopt : setup.options.ckpt_step;
}

std::unique_ptr<checkpoint::OpenedCheckpoint> with_frozen(std::unique_ptr<checkpoint::OpenedCheckpoint> opened,
                                                          const TrainingSetup& setup) {
  return checkpoint::with_frozen(std::move(opened), [&](const std::string& name) {
    std::vector<std::string> not_told;
    return open_any(setup, name, not_told);
  });
}

std::vector<checkpoint::TensorRange> all_of_model(const ModelSetup& model, std::vector<checkpoint::TensorRange> held) {
  return model.all_weights.empty() ? std::move(held) : model.all_weights;
}

std::vector<checkpoint::TensorRange> without_new_adapters(const checkpoint::WeightSource& given,
                                                          std::vector<checkpoint::TensorRange> ranges) {
  const auto is_adapter = [](const auto& range) { return nn::is_of_adapter(range.name); };
  if (std::none_of(ranges.begin(), ranges.end(), [&](const auto& r) { return is_adapter(r) && given.has(r.name); }))
    std::erase_if(ranges, is_adapter);
  return ranges;
}

std::vector<std::string> load_weights(const checkpoint::WeightSource& source,
                                      const std::vector<checkpoint::TensorRange>& ranges,
                                      const std::vector<checkpoint::TensorRange>& all, bool upcycles) {
  const auto& model = all.empty() ? ranges : all;
  if (!upcycles && gets_score_head(source, model)) {
    auto notes = checkpoint::load_all(source, without_score_head(source, ranges, false),
                                      without_score_head(source, model, true));
    notes.push_back(text(source.folder().string(), " has no ", score_head,
                         ": the score head begins with random values, and the output layer is left out"));
    return notes;
  }
  if (!upcycles) return checkpoint::load_all(source, ranges, all);
  const auto known = upcycled(all);
  return checkpoint::load_all(UpcycledWeights(source, known), upcycled(ranges), known);
}

std::vector<std::string> load_adapter(const checkpoint::WeightSource& adapter, const ModelSetup& model,
                                      ModelState& state) {
  auto known = all_of_model(model, state.trained_ranges());
  auto wanted = state.trained_ranges();
  // What is trained beside the adapters, but is not of lora_config, begins as the base has it.
  const auto stays = [&](const auto& range) { return !nn::is_of_adapter(range.name) && !adapter.has(range.name); };
  std::vector<std::string> notes;
  std::erase_if(known, [&](const auto& range) { return !model.trained.trains(range.name); });
  for (const auto& range : known)
    if (stays(range)) notes.push_back(text(range.name, " is trained, but is not in ", adapter.folder().string()));
  std::erase_if(known, stays);
  std::erase_if(wanted, stays);
  auto more = checkpoint::load_all(adapter, wanted, known);
  std::move(more.begin(), more.end(), std::back_inserter(notes));
  notes.push_back(text("adapters begin with those of ", adapter.folder().string()));
  return notes;
}

void refuse_packed(const checkpoint::WeightSource& source, const std::vector<checkpoint::TensorRange>& trained,
                   bool upcycles) {
  const auto packed =
      upcycles ? packed_of(UpcycledWeights(source, upcycled(trained)), upcycled(trained)) : packed_of(source, trained);
  if (packed.empty()) return;
  const auto& [name, type] = *packed.begin();
  throw ConfigError(text(source.folder().string(), ": ", name,
                         packed.size() > 1 ? text(" and ", packed.size() - 1, " more weights are") : std::string(" is"),
                         " stored in ", type, ", which cannot be trained; freeze ", packed.size() > 1 ? "them" : "it",
                         " (lora_config.use_lora, training_config.frozen_parameters), or give "
                         "training_config.load_checkpoint the folder with weights of 16 or 32 bits"));
}

void map_frozen(const checkpoint::WeightSource& source, ModelState& state, std::vector<checkpoint::TensorRange>& ranges,
                std::vector<std::string>& notes) {
  auto& frozen = state.frozen();
  const auto mapped = frozen.map(source);
  std::erase_if(ranges, [&](const auto& range) { return mapped.contains(range.name); });
  if (frozen.count() > 0)
    notes.push_back(text(mapped.size(), " of the ", frozen.count(),
                         " frozen parameters of the first rank are mapped from ", source.folder().string()));
}

void map_laid_out(const checkpoint::OpenedCheckpoint& source, const TrainingSetup& setup,
                  const std::function<bool(const std::string& name)>& wanted, FrozenWeights& frozen,
                  std::vector<checkpoint::TensorRange>& ranges, std::vector<std::string>& notes) {
  const auto needs = [&](const auto& range) {
    return source.has(range.name) && checkpoint::needs_layout(source, range.name);
  };
  if (setup.documents.formats.of(source.folder()) == nullptr || std::none_of(ranges.begin(), ranges.end(), needs))
    return;
  const auto cache = checkpoint::laid_out_in(setup.options.output_dir);
  const auto laid_out = checkpoint::lay_out(source, wanted, cache, notes);
  if (!laid_out) return;
  const auto mapped = frozen.map(*laid_out);
  notes.push_back(text(mapped.size(), " more are mapped from ", laid_out->folder().string()));
  std::erase_if(ranges, [&](const auto& range) { return mapped.contains(range.name); });
}

std::vector<std::string> load_frozen(const checkpoint::OpenedCheckpoint& given, const TrainingSetup& setup,
                                     ModelState& state, std::optional<checkpoint::FrozenBase>& needed) {
  auto& frozen = state.frozen();
  needed = checkpoint::base_in(given.blobs());
  if (setup.model.trained.all()) return {};
  const auto base = needed ? open_base(given, *needed, setup) : nullptr;
  if (base) frozen.came_from(std::filesystem::absolute(base->folder()));
  if (frozen.count() == 0) return {};
  const auto& source = base ? *base : given;
  const bool upcycles = setup.model.upcycles && expert_in(source).empty();  // the run's own checkpoints have experts
  auto ranges = frozen.ranges(StateScope::held);
  const auto every = all_of_model(setup.model, state.weight_ranges());
  std::vector<std::string> notes;
  if (!upcycles) map_frozen(source, state, ranges, notes);
  if (!upcycles && !setup.options.save_frozen_parameters.value_or(true))
    map_laid_out(
        source, setup, [&](const auto& name) { return !setup.model.trained.trains(name); }, frozen, ranges, notes);
  std::vector<std::string> told;  // by whoever reads the trained ones
  const auto known = expected_in(source, without_new_adapters(source, every), setup, base ? notes : told);
  if (!upcycles) {
    leave_out_lacking(source, setup.options, ranges);
    draw_lacking(source, setup.options, frozen);
  }
  const auto more = load_weights(source, ranges, known, upcycles);
  notes.insert(notes.end(), more.begin(), more.end());
  frozen.must_be_finite(source.folder());
  if (base) notes.push_back(text("the frozen parameters are those of ", source.folder().string()));
  return notes;
}

std::uint64_t sum_over_ranks(const comm::Communicator& world, std::uint64_t own, std::string_view who) {
  std::vector<std::uint64_t> parts(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(parts)), who);
  std::uint64_t sum = 0;
  for (const auto part : parts) sum += part;
  return sum;
}

std::uint64_t frozen_digest(const comm::Communicator& world, ModelState& state, kernels::Threads& threads) {
  return sum_over_ranks(world, state.frozen().digest(threads), "the digest of frozen parameters");
}

void check_base(const comm::Communicator& world, ModelState& state, kernels::Threads& threads,
                const checkpoint::FrozenBase& base) {
  const auto digest = frozen_digest(world, state, threads);
  comm::together(world, "loading", [&] {
    if (digest != base.digest && world.rank() == 0)
      throw ConfigError(text("the checkpoint was saved without its frozen parameters, which were those of ", base.name,
                             "; the ones that were found there or in training_config.load_checkpoint are others; give "
                             "load_checkpoint the folder that has the weights with which the run began"));
  });
}

void refuse_left_over(const checkpoint::OpenedCheckpoint& saved, const std::vector<checkpoint::TensorRange>& all) {
  std::set<std::string> known;
  for (const auto& range : all) known.insert(range.name);
  for (const auto& name : saved.names())
    if (known.count(name) == 0)
      throw ConfigError(text(saved.folder().string(), ": is a checkpoint of another model: it has ", name,
                             ", but the model here has no such weight; give the recipe of this checkpoint"));
}

void must_have_state(const checkpoint::OpenedCheckpoint& given, const checkpoint::Progress& progress) {
  if (!given.optimizer_names().empty()) return;
  throw ConfigError(
      text(given.folder().string(),
           ": was saved without optimizer state; give training_config.no_load_optim: true to continue "
           "after iteration ",
           progress.iteration,
           " with optimizer state of zero, or resume_training: false to begin a new run with its weights"));
}

void must_have_seed(const checkpoint::OpenedCheckpoint& given, const checkpoint::Progress& progress,
                    const TrainingOptions& o) {
  if (progress.has_seed || o.no_load_rng) return;
  throw ConfigError(text(given.folder().string(),
                         ": was saved without random seed (training_config.no_save_rng); give "
                         "training_config.no_load_rng: true to continue with training_config.seed, or resume_training: "
                         "false to begin a new run with its weights"));
}

void refuse_other_stride(const std::filesystem::path& folder, const checkpoint::Progress& progress,
                         const TrainingSetup& setup) {
  const auto stride = setup.data.train_order ? setup.data.train_order->stride() : 0;
  const auto consumed = progress.consumed_samples - progress.data_start;
  if (stride == 0 || consumed % stride == 0) return;
  throw ConfigError(text(folder.string(), ": the run has consumed ", consumed,
                         " samples, and with this dataset_config.dataloader_type "
                         "it can continue only after a multiple of ",
                         stride,
                         ", the samples of a micro-batch on all data-parallel ranks; give a dataset_config.batch_size "
                         "and a number of ranks whose product divides ",
                         consumed, ", or training_config.new_dataset: true to read the data from its beginning"));
}

}  // namespace tessera::training
