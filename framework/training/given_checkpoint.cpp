#include "framework/training/given_checkpoint.h"

#include <optional>
#include <set>

#include "framework/comm/together.h"
#include "framework/training/upcycling.h"

namespace tessera::training {
namespace {

/// load_checkpoint may name one checkpoint or a folder of them; what a conversion wrote has no prefix. Nothing where
/// the run's own folder has none yet and may start from scratch.
std::optional<checkpoint::Checkpoint> open_given(const TrainingOptions& o, const std::filesystem::path& given) {
  if (std::filesystem::exists(given / "manifest.json")) return checkpoint::Checkpoint::open(given);
  for (const auto& prefix : {o.prefix, std::string()})
    for (const auto& folder : {given, given / "checkpoints"}) {
      const auto found = checkpoint::list_checkpoints(folder, prefix);
      if (!found.empty()) return checkpoint::Checkpoint::open(found.front().folder);
    }
  const auto place = [](const std::filesystem::path& folder) { return std::filesystem::weakly_canonical(folder / ""); };
  if (!o.exit_on_missing_checkpoint && place(given) == place(o.output_dir)) return std::nullopt;
  throw ConfigError(text("training_config.load_checkpoint: no checkpoint named ",
                         checkpoint::checkpoint_name(o.prefix, 0), " or later under ", given.string(),
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

}  // namespace

/// What load_checkpoint names, of any format; null where the run's own folder has none yet.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_any(const TrainingSetup& setup, const std::filesystem::path& place) {
  const auto& o = setup.options;
  if (const auto* format = setup.documents.formats.of(place))
    return format->open(*format->find(place), setup.documents.mappings);
  auto native = open_given(o, place);
  if (!native) return nullptr;
  const bool resumes = o.resume_training != Resume::never && native->blobs().count(checkpoint::progress_blob) != 0;
  return std::make_unique<checkpoint::NativeCheckpoint>(*std::move(native), !resumes || o.crc_check);
}

std::vector<std::string> load_weights(const checkpoint::WeightSource& source,
                                      const std::vector<checkpoint::TensorRange>& ranges,
                                      const std::vector<checkpoint::TensorRange>& all, bool upcycles) {
  if (!upcycles) return checkpoint::load_all(source, ranges, all);
  const auto known = upcycled(all);
  return checkpoint::load_all(UpcycledWeights(source, known), upcycled(ranges), known);
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
  std::vector<std::string> notes;
  if (!setup.model.upcycles) map_frozen(source, state, ranges, notes);
  const auto more = load_weights(source, ranges, all.empty() ? state.weight_ranges() : all, setup.model.upcycles);
  notes.insert(notes.end(), more.begin(), more.end());
  for (const auto& range : frozen.ranges(StateScope::held))
    checkpoint::must_be_finite(range.tensor, text(source.folder().string(), ": tensor '", range.name, "'"));
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
