#include "framework/training/saving/resume_from_memory.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/comm/together.h"
#include "framework/training/saving/after_loading.h"
#include "framework/training/saving/rates.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/setup/given_checkpoint.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {
namespace {

constexpr const char *of_memory = "the state in memory", *of_frozen = "the frozen parameters";

/// The newest checkpoint of the run with that id in its folder, and its iteration; -1: there is none. One in another
/// program's format may be without id: what was there before this run began was set aside.
std::pair<std::int64_t, std::filesystem::path> newest_in_folder(const TrainingSetup& setup, const std::string& run) {
  for (const auto& found : finished_of(run, setup.options, setup.documents.formats)) {
    if (found.format == nullptr && !saved_by(run)(found.folder)) continue;
    try {
      if (found.format != nullptr && !found.format->open(found.folder, setup.documents.mappings)->progress()) continue;
      return {found.iteration, found.folder};
    } catch (const Error&) {
      // Nobody can continue from a damaged one.
    }
  }
  return {-1, {}};
}

/// A run saves no checkpoint of a later iteration than that of its state, and sets those aside after which it goes
/// back. So one that is there was saved by a run that somebody continued without this state.
void refuse_newer_checkpoint(std::int64_t step, const std::string& run, const TrainingSetup& setup) {
  comm::together(setup.model.processes.world, of_memory, [&] {
    if (setup.model.processes.world.rank() > 0) return;
    const auto [iteration, folder] = newest_in_folder(setup, run);
    if (iteration <= step) return;
    const auto job = worker::id_of_job();
    throw ConfigError(text("the state in memory of job ", job, " is after iteration ", step, ", but the checkpoint ",
                           folder.string(), " is after iteration ", iteration,
                           ": the run was continued without this state. Neither is changed. To continue from the "
                           "checkpoint, delete the state on each host: `tessera state clean ",
                           job, "`. To continue from the state, move all checkpoints after iteration ", step,
                           " out of the run folder. Then give the same command again"));
  });
}

/// Whether the checkpoint can be opened, and this host has all of it.
bool is_whole_here(const checkpoint::FoundCheckpoint& found, const TrainingSetup& setup) {
  try {
    if (found.format == nullptr) return !checkpoint::Checkpoint::open(found.folder).is_divided();
    return found.format->open(found.folder, setup.documents.mappings) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

/// The newest checkpoint that the job has saved or began with; empty: there is none. Frozen parameters do not change,
/// but older ones may be of a start that trained them. Collective.
std::filesystem::path newest_of_job(const TrainingSetup& setup, const std::string& run, const RunFolder& folder) {
  const auto& world = setup.model.processes.world;
  std::string newest;
  comm::together(world, of_frozen, [&] {
    if (world.rank() > 0) return;
    for (const auto& found : finished_of(run, setup.options, setup.documents.formats)) {
      if (found.iteration < folder.began_after()) return;
      if (!saved_by(run)(found.folder) || !is_whole_here(found, setup)) continue;
      newest = found.folder.string();
      return;
    }
  });
  return world.broadcast(newest, 0, of_frozen);
}

/// Where the frozen parameters are that no checkpoint of the job has; null: they have their initial values.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_source(const TrainingSetup& setup, const RunPosition& position,
                                                          const RunFolder& folder, std::vector<std::string>& notes) {
  const auto& given = setup.options.load_checkpoint;
  if (position.frozen) {
    const std::filesystem::path source = position.frozen->name;
    std::error_code absent;
    // A folder of several may have others now, and can have been set aside with an earlier run.
    const bool is_given = given && source == std::filesystem::absolute(*given);
    if (!is_given && std::filesystem::exists(source, absent)) return open_any(setup, source, notes);
  }
  return given ? open_any(setup, folder.given_checkpoint(), notes, step_of_given(setup)) : nullptr;
}

void refuse_other_frozen(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                         const checkpoint::FrozenBase& source) {
  const auto& world = setup.model.processes.world;
  const auto digest = frozen_digest(world, state, threads);
  comm::together(world, of_frozen, [&] {
    if (digest == source.digest || world.rank() > 0) return;
    const auto job = worker::id_of_job();
    throw ConfigError(text("the frozen parameters of the run whose state is in the memory of job ", job,
                           " were those of ", source.name,
                           ", and what is there or in training_config.load_checkpoint now has others. The state is not "
                           "changed. Put that checkpoint back; or, to continue from the newest checkpoint of the run, "
                           "delete the state on each host: `tessera state clean ",
                           job, "`. Then give the same command again"));
  });
}

}  // namespace

Restored restore_position(std::int64_t step, const RunPosition& position, TrainingSetup& setup) {
  refuse_newer_checkpoint(step, position.progress.run, setup);
  Restored out;
  out.progress = position.progress;
  restore_rates(out.progress, setup);
  out.continues = true;
  if (position.saved_at >= 0) out.folder = checkpoint_path(setup.options, position.saved_at);
  out.notes.push_back(text("continuing after iteration ", step, " with the state in memory: no step is lost"));
  return out;
}

std::vector<std::string> restore_frozen(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                                        const RunPosition& position, const RunFolder& folder) {
  std::vector<std::string> notes;
  if (setup.model.trained.all()) return notes;
  const auto& o = setup.options;
  const auto& world = setup.model.processes.world;
  const auto own = newest_of_job(setup, position.progress.run, folder);
  std::optional<checkpoint::FrozenBase> base;
  comm::together(world, "loading", [&] {
    const auto source = own.empty() ? open_source(setup, position, folder, notes) : open_any(setup, own, notes);
    if (!source || setup.model.upcycles) state.frozen().initialise(threads, static_cast<std::uint64_t>(o.seed));
    if (!source) return;
    const auto more = load_frozen(*source, setup, state, base);
    keep_origin(*source, o, state);
    notes.insert(notes.end(), more.begin(), more.end());
  });
  if (base) check_base(world, state, threads, *base);
  // A checkpoint of the job has them in the type that the model reads, and so with another digest than a wider source.
  if (own.empty() && position.frozen) refuse_other_frozen(setup, state, threads, *position.frozen);
  return notes;
}

std::optional<checkpoint::FrozenBase> source_of_frozen(const TrainingSetup& setup, ModelState& state,
                                                       kernels::Threads& threads, const Restored& from) {
  if (setup.model.trained.all()) return std::nullopt;
  auto source = state.frozen().origin();
  if (source.empty()) source = from.folder;
  if (source.empty()) source = setup.options.load_checkpoint.value_or("");
  if (source.empty()) return std::nullopt;  // drawn
  return checkpoint::FrozenBase{std::filesystem::absolute(source).string(),
                                frozen_digest(setup.model.processes.world, state, threads)};
}

}  // namespace tessera::training
