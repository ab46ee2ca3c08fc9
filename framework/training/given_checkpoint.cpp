#include "framework/training/given_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "framework/comm/together.h"
#include "framework/nn/adapter.h"
#include "framework/training/upcycling.h"

namespace tessera::training {
namespace {

/// load_checkpoint may name one checkpoint or a folder of them; what a conversion wrote has no prefix. Nothing where
/// the run's own folder has none yet and may start from scratch.
std::optional<checkpoint::Checkpoint> open_given(const TrainingOptions& o, const std::filesystem::path& given,
                                                 const std::string& option) {
  if (std::filesystem::exists(given / "manifest.json")) return checkpoint::Checkpoint::open(given);
  for (const auto& prefix : {o.prefix, std::string()})
    for (const auto& folder : {given, given / "checkpoints"}) {
      const auto found = checkpoint::list_checkpoints(folder, prefix);
      if (!found.empty()) return checkpoint::Checkpoint::open(found.front().folder);
    }
  const auto place = [](const std::filesystem::path& folder) { return std::filesystem::weakly_canonical(folder / ""); };
  if (!o.exit_on_missing_checkpoint && place(given) == place(o.output_dir)) return std::nullopt;
  throw ConfigError(text(option, ": no checkpoint named ", checkpoint::checkpoint_name(o.prefix, 0), " or later under ",
                         given.string(),
                         "; give a checkpoint folder, or a folder that holds some (see training_config.prefix)"));
}

/// The folder with the frozen parameters that `given` was saved without.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_base(const checkpoint::OpenedCheckpoint& given,
                                                        const checkpoint::FrozenBase& base,
                                                        const TrainingSetup& setup) {
  const auto& named = setup.options.load_checkpoint;
  for (const auto& place : {named.value_or(base.name), base.name}) {
    try {
      auto opened = open_any(setup, place);
      if (opened && opened->folder() != given.folder()) return opened;
    } catch (const ConfigError& error) {
      if (place == base.name)
        throw ConfigError(text(given.folder().string(), ": ", given.about_left_out(), ", and that cannot be read: ",
                               error.what(), "\n  give training_config.load_checkpoint the folder that has them"));
    }
  }
  throw ConfigError(text(given.folder().string(), ": ", given.about_left_out(),
                         ", but that folder has no checkpoint; give training_config.load_checkpoint the folder that "
                         "has them"));
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

/// What load_checkpoint names, of any format; null where the run's own folder has none yet.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_any(const TrainingSetup& setup, const std::filesystem::path& place,
                                                       const std::string& option) {
  const auto& o = setup.options;
  if (const auto* format = setup.documents.formats.of(place))
    return format->open(*format->find(place), setup.documents.mappings);
  auto native = open_given(o, place, option);
  if (!native) return nullptr;
  const bool resumes = o.resume_training != Resume::never && native->blobs().count(checkpoint::progress_blob) != 0;
  return std::make_unique<checkpoint::NativeCheckpoint>(*std::move(native), !resumes || o.crc_check);
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
  auto known = model.all_weights.empty() ? state.trained_ranges() : model.all_weights;
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

std::vector<std::string> load_frozen(const checkpoint::OpenedCheckpoint& given, const TrainingSetup& setup,
                                     ModelState& state, std::optional<checkpoint::FrozenBase>& needed) {
  auto& frozen = state.frozen();
  const auto& all = setup.model.all_weights;
  needed = checkpoint::base_in(given.blobs());
  if (frozen.count() == 0) return {};
  const auto base = needed ? open_base(given, *needed, setup) : nullptr;
  const auto& source = base ? *base : given;
  auto ranges = frozen.ranges(StateScope::held);
  const auto every = all.empty() ? state.weight_ranges() : all;
  std::vector<std::string> notes;
  if (!setup.model.upcycles) map_frozen(source, state, ranges, notes);
  const auto known = without_new_adapters(source, every);
  const auto more = load_weights(source, ranges, known, setup.model.upcycles);
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

std::uint64_t frozen_digest(const comm::Communicator& world, ModelState& state) {
  return sum_over_ranks(world, state.frozen().digest(), "the digest of frozen parameters");
}

void check_base(const comm::Communicator& world, ModelState& state, const checkpoint::FrozenBase& base) {
  const auto digest = frozen_digest(world, state);
  comm::together(world, "loading", [&] {
    if (digest != base.digest && world.rank() == 0)
      throw ConfigError(text("the checkpoint was saved without its frozen parameters, which were those of ", base.name,
                             "; the ones that were found there or in training_config.load_checkpoint are others; give "
                             "load_checkpoint the folder that has the weights with which the run began"));
  });
}

}  // namespace tessera::training
