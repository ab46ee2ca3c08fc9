#include "framework/training/resume.h"

#include <nlohmann/json.hpp>

#include "framework/base/json.h"
#include "framework/base/links.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/writer.h"
#include "framework/comm/together.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/options/yaml.h"
#include "framework/training/progress_blob.h"
#include "framework/training/recipe_differences.h"

namespace tessera {
namespace {

/// Load; where the tensors do not fit, the error names the options that say otherwise than those of the checkpoint.
void naming_options(const TrainingSetup& setup, const Blobs& saved, const std::function<void()>& load) {
  try {
    load();
  } catch (const ConfigError& error) {
    const auto lines = recipe_differences(setup.documents.resolved_recipe, saved);
    if (lines.empty()) throw;
    throw ConfigError(text(error.what(), "\nthe recipe differs from that of the checkpoint:", lines));
  }
}

void read_all(const Checkpoint& checkpoint, const std::vector<TensorRange>& ranges, bool check_crc) {
  checkpoint.must_fit(ranges);
  for (const auto& range : ranges) checkpoint.read(range, {check_crc, true});
}

/// Fill what has another padding of the vocabulary there than here. Returns all else.
std::vector<TensorRange> read_other_paddings(const WeightSource& source, const std::vector<TensorRange>& ranges,
                                             std::int64_t tokens, std::vector<std::string>& notes) {
  std::vector<TensorRange> others;
  for (const auto& range : ranges) {
    if (!differs_in_padding(source, range, tokens)) {
      others.push_back(range);
      continue;
    }
    auto note = read_other_padding(source, range);
    if (notes.empty() || notes.back() != note) notes.push_back(std::move(note));  // once for all boxes of a tensor
  }
  return others;
}

/// All of it: weights, optimizer, counters, as far as the options ask.
Progress continue_from(const Checkpoint& checkpoint, TrainingSetup& setup, ModelState& state,
                       std::vector<std::string>& notes) {
  const auto& o = setup.options;
  const CheckpointWeights source(checkpoint);
  const auto load = [&](const std::vector<TensorRange>& ranges) {
    read_all(checkpoint, read_other_paddings(source, ranges, setup.model.tokens, notes), o.crc_check);
  };
  naming_options(setup, checkpoint.blobs(), [&] {
    load(state.weight_ranges());
    if (!o.no_load_optim) load(state.optimizer_ranges());
  });
  auto progress = read_progress(checkpoint.blob(progress_blob), checkpoint.folder(), setup);
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  notes.push_back(text("going on from ", checkpoint.folder().string(), " after iteration ", progress.iteration));
  return progress;
}

/// load_checkpoint may name one checkpoint or a folder of them; what a conversion wrote has no prefix. Nothing where
/// the run's own folder has none yet and may begin anew.
std::optional<Checkpoint> open_given(const TrainingOptions& o, const std::filesystem::path& given) {
  if (std::filesystem::exists(given / "manifest.json")) return Checkpoint::open(given);
  for (const auto& prefix : {o.prefix, std::string()})
    for (const auto& folder : {given, given / "checkpoints"}) {
      const auto found = list_checkpoints(folder, prefix);
      if (!found.empty()) return Checkpoint::open(found.front().folder);
    }
  const auto place = [](const std::filesystem::path& folder) { return std::filesystem::weakly_canonical(folder / ""); };
  if (!o.exit_on_missing_checkpoint && place(given) == place(o.output_dir)) return std::nullopt;
  throw ConfigError(text("training_config.load_checkpoint: no checkpoint named ", checkpoint_name(o.prefix, 0),
                         " or later under ", given.string(),
                         "; give a checkpoint folder, or a folder that holds some (see training_config.prefix)"));
}

/// The weights of a model that another program saved, or of a conversion; all else begins anew.
void begin_with(const WeightSource& source, ModelState& state, std::span<const TensorRange> all,
                std::vector<std::string>& notes) {
  const auto changes = load_all(source, state.weight_ranges(), all);
  notes.insert(notes.end(), changes.begin(), changes.end());
  notes.push_back(text("beginning with the weights of ", source.folder().string()));
}

/// All that a run of Megatron-LM saved, as far as the options ask.
Progress continue_from(const MegatronCheckpoint& given, TrainingSetup& setup, ModelState& state,
                       std::vector<std::string>& notes) {
  const auto& o = setup.options;
  naming_options(setup, given.blobs(), [&] {
    const auto changes = load_all(given, state.weight_ranges(), setup.model.all_weights);
    notes.insert(notes.end(), changes.begin(), changes.end());
    if (o.no_load_optim) return;
    for (const auto& range : read_other_paddings(given, state.optimizer_ranges(), setup.model.tokens, notes)) {
      if (!given.has(range.name) || given.shape(range.name) != range.global_shape)
        throw ConfigError(text(given.folder().string(), ": has no '", range.name, "' of ", range.global_shape,
                               "; give training_config.no_load_optim: true to begin with the weights alone"));
      given.read_box(range);
    }
  });
  auto progress = read_progress(given.progress(), given.folder(), setup);
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  notes.push_back(text("going on from ", given.folder().string(), " after iteration ", progress.iteration));
  return progress;
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainingOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoints";
}

std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration) {
  if (options.ckpt_format == CheckpointFormat::torch)
    return std::filesystem::path(options.output_dir) / checkpoint_name("", iteration);
  return checkpoint_folder(options) / checkpoint_name(options.prefix, iteration);
}

void load_weights(const Checkpoint& checkpoint, ModelState& state, bool check_crc) {
  read_all(checkpoint, state.weight_ranges(), check_crc);
  state.weights_changed();
}

namespace {

/// The id of the run that saved a checkpoint; empty where it does not say.
std::string run_of(const std::filesystem::path& checkpoint) {
  try {
    const auto json = nlohmann::json::parse(read_file(checkpoint / "blobs" / progress_blob));
    return json.value("run", "");
  } catch (const std::exception&) {
    return "";
  }
}

/// A checkpoint without an id belongs to the run of its folder.
BelongsToRun belongs_to(const std::string& run) {
  return [run](const std::filesystem::path& checkpoint) {
    const auto theirs = run_of(checkpoint);
    return theirs.empty() || theirs == run;
  };
}

/// Those of the run that run.json names, `recorded`; where it names none, or one without checkpoints here, of the run
/// that saved the newest.
BelongsToRun own_checkpoints(const TrainingOptions& o, const std::string& recorded, std::vector<std::string>& notes) {
  const auto all = list_checkpoints(checkpoint_folder(o), o.prefix);
  const auto count = [&](const BelongsToRun& belongs) {
    return std::count_if(all.begin(), all.end(), [&](const auto& info) { return belongs(info.folder); });
  };
  auto own = belongs_to(recorded);
  if (!all.empty() && (recorded.empty() || count(own) == 0)) own = belongs_to(run_of(all.front().folder));
  if (const auto others = static_cast<std::ptrdiff_t>(all.size()) - count(own); others > 0)
    notes.push_back(text("passed over ", others, others == 1 ? " checkpoint" : " checkpoints", " of another run in ",
                         checkpoint_folder(o).string()));
  return own;
}

/// The newest good checkpoint of the run folder, found by the first process (which sets damaged ones aside) for all.
std::optional<std::filesystem::path> find_own(const TrainingSetup& setup, const std::string& run, std::int64_t& lost_at,
                                              std::vector<std::string>& notes) {
  const auto& world = setup.model.processes.world;
  const auto& o = setup.options;
  std::string found;
  together(world, "the search for checkpoints", [&] {
    if (world.rank() > 0) return;
    const auto told = [&](const CheckpointInfo& info, const std::string& reason, const std::filesystem::path& aside) {
      lost_at = std::max(lost_at, info.iteration);
      notes.push_back(
          text("checkpoint ", info.folder.string(), " is damaged: ", reason, "; set aside as ", aside.string()));
    };
    const auto own = own_checkpoints(o, run, notes);
    if (const auto good = newest_good(checkpoint_folder(o), o.prefix, o.crc_check, told, own)) found = good->folder();
  });
  found = world.broadcast(found, 0, "the checkpoint to go on from");
  if (found.empty()) return std::nullopt;
  return found;
}

/// Go on from the run folder's own checkpoints, those of `run` first; false when it has none.
bool resume_own(TrainingSetup& setup, ModelState& state, const std::string& run, Restored& out) {
  const auto& o = setup.options;
  if (o.ckpt_format == CheckpointFormat::torch && is_megatron_folder(o.output_dir)) {
    together(setup.model.processes.world, "loading", [&] {
      const MegatronCheckpoint newest(o.output_dir, setup.documents.mappings);
      out.progress = continue_from(newest, setup, state, out.notes);
      out.folder = newest.folder();
    });
    return true;
  }
  std::int64_t lost_at = -1;
  const auto found = find_own(setup, run, lost_at, out.notes);
  together(setup.model.processes.world, "loading", [&] {
    if (!found) return;
    out.progress = continue_from(Checkpoint::open(*found), setup, state, out.notes);
    out.folder = *found;
  });
  if (lost_at >= 0)
    out.notes.push_back(text("the damage costs ", lost_at - out.progress.iteration, " steps, which are trained again"));
  if (!found && o.resume_training == Resume::always && !o.load_checkpoint)
    throw ConfigError(text("training_config.resume_training is true, but ",
                           checkpoint_path(o, 0).parent_path().string(),
                           " holds no usable checkpoint; give auto to begin anew, or load_checkpoint"));
  return found.has_value();
}

/// Whether a checkpoint is one of those that the run of output_dir saved there, in either format.
bool is_of_run_folder(const TrainingOptions& o, const std::filesystem::path& place) {
  const auto real = std::filesystem::canonical(place);
  const std::filesystem::path folder = o.output_dir;
  const bool is_iteration = real.filename().string().rfind("iter_", 0) == 0;
  return lies_within(checkpoint_folder(o), real) || std::filesystem::equivalent(real, folder) ||
         (is_iteration && std::filesystem::equivalent(real.parent_path(), folder));
}

/// Begin with, or go on from, what load_checkpoint names, which lies at `place`.
void load_given(TrainingSetup& setup, ModelState& state, const std::filesystem::path& place, Restored& out) {
  const auto& o = setup.options;
  const auto resume = [&](const auto& given) {
    out.progress = continue_from(given, setup, state, out.notes);
    out.folder = given.folder();
    out.continues = is_of_run_folder(o, place);
  };
  if (is_hugging_face_folder(place)) {
    begin_with(HuggingFaceModel(place, setup.documents.mappings), state, setup.model.all_weights, out.notes);
    return;
  }
  if (is_megatron_folder(place)) {
    const MegatronCheckpoint given(place, setup.documents.mappings);
    if (o.resume_training != Resume::never) {
      resume(given);
    } else {
      begin_with(given, state, setup.model.all_weights, out.notes);
    }
    return;
  }
  const auto given = open_given(o, place);
  if (!given) {
    out.notes.push_back(text("no checkpoint in ", place.string(), " yet: beginning anew"));
  } else if (o.resume_training != Resume::never && given->blobs().count(progress_blob) != 0) {
    resume(*given);
  } else {
    begin_with(CheckpointWeights(*given), state, setup.model.all_weights, out.notes);
  }
}

}  // namespace

Restored restore(TrainingSetup& setup, ModelState& state, Threads& threads, const RunFolder* folder) {
  const auto& o = setup.options;
  Restored out;
  out.progress.seed = static_cast<std::uint64_t>(o.seed);
  const bool resumes = folder != nullptr ? folder->resumes() : o.resume_training != Resume::never;
  if (resumes && resume_own(setup, state, folder != nullptr ? folder->found().run : "", out)) {
    out.continues = true;
    out.is_saved = std::filesystem::exists(checkpoint_path(o, out.progress.iteration));
    state.weights_changed();
    return out;
  }
  state.initialise(threads, static_cast<std::uint64_t>(o.seed));
  if (!o.load_checkpoint) return out;
  together(setup.model.processes.world, "loading", [&] {
    const std::filesystem::path given = *o.load_checkpoint;
    load_given(setup, state, folder != nullptr ? folder->given_checkpoint() : given, out);
  });
  state.weights_changed();
  return out;
}

std::string how_to_resume(const TrainingOptions& options, bool saved) {
  if (!saved) return "no checkpoint was saved: the same command starts from the beginning";
  if (options.resume_training != Resume::never) return "the same command resumes from the newest checkpoint";
  return "to resume, add --set training_config.resume_training=true: the same command alone starts a new run";
}

namespace {

/// A step of saving that can fail: everybody learns of it, and what was written goes.
void attempt(const Communicator& world, const CheckpointWriter& writer, const std::function<void()>& work) {
  try {
    together(world, "saving", work);
  } catch (const PeerFailed& failed) {
    if (world.rank() == 0) writer.abandon();
    throw IoError(failed.what());
  } catch (const IoError&) {
    if (world.rank() == 0) writer.abandon();
    throw;
  }
}

/// One checkpoint by all processes, of what `tensors` and `blobs` give. Returns its folder.
std::filesystem::path save_together(const Communicator& world, const CheckpointWriter& writer,
                                    const std::function<std::vector<TensorRange>()>& tensors,
                                    const std::function<Blobs()>& blobs) {
  const bool first = world.rank() == 0;
  attempt(world, writer, [&] {
    if (first) writer.begin();
  });
  std::string part;
  attempt(world, writer, [&] { part = writer.write(world.rank(), tensors()); });
  const auto written = world.all_gather(part, "saving");
  attempt(world, writer, [&] {
    if (first) writer.commit(written, blobs());
  });
  return writer.folder();
}

/// A checkpoint of our own by all processes. Returns its folder.
std::filesystem::path save_own(const TrainingSetup& setup, ModelState& state, const Progress& progress,
                               const CheckpointWriter& writer) {
  const auto tensors = [&] {
    auto all = state.weight_ranges(StateScope::owned);
    const auto slots = state.optimizer_ranges(StateScope::owned);
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  };
  return save_together(setup.model.processes.world, writer, tensors, [&] {
    auto blobs = setup.documents.files;
    blobs[progress_blob] = write_progress(progress, setup);
    return blobs;
  });
}

MegatronLayout megatron_layout(const TrainingSetup& setup) {
  const auto& sizes = setup.model.processes.mesh.sizes();
  return {sizes.tensor, sizes.data, setup.model.plan.layers_by_chunk(),
          setup.optimization.data_parallel.use_distributed_optimizer};
}

void save_alone_as_megatron(const TrainingSetup& setup, ModelState& state, const Progress& progress) {
  auto tensors = state.weight_ranges();
  const auto slots = state.optimizer_ranges();
  tensors.insert(tensors.end(), slots.begin(), slots.end());
  write_blobs_beside(checkpoint_path(setup.options, progress.iteration), progress.iteration, setup.documents.files);
  save_megatron(setup.options.output_dir, progress.iteration, tensors, write_progress(progress, setup),
                parse_yaml(setup.documents.resolved_recipe, "resolved.yaml"), setup.model.precision.params,
                setup.documents.mappings);
}

/// By way of a checkpoint of our own, which every layout can save and every rank of Megatron's can read its part from:
/// state that replicas share, copies of heads and uneven cuts need no further thought.
void save_together_as_megatron(const TrainingSetup& setup, ModelState& state, const Progress& progress) {
  const auto& world = setup.model.processes.world;
  const auto& place = setup.model.processes.place;
  const std::filesystem::path root = setup.options.output_dir, between = root / "before_megatron_tmp";
  const CheckpointWriter writer(between, "", progress.iteration);
  const auto work = [&] {
    attempt(world, writer, [&] {
      if (world.rank() == 0) delete_all(between);  // what a crash left, or a link
    });
    const auto folder = save_own(setup, state, progress, writer);
    attempt(world, writer, [&] {
      if (place.data != 0 || place.context != 0) return;
      save_megatron_rank(root, Checkpoint::open(folder), write_progress(progress, setup),
                         parse_yaml(setup.documents.resolved_recipe, "resolved.yaml"), setup.model.precision.params,
                         setup.documents.mappings, megatron_layout(setup), place.tensor, place.pipeline);
    });
    attempt(world, writer, [&] {
      if (world.rank() != 0) return;
      write_blobs_beside(checkpoint_path(setup.options, progress.iteration), progress.iteration, setup.documents.files);
      finish_megatron(root, progress.iteration);
      delete_all(between);
    });
  };
  try {
    work();
  } catch (const Error&) {
    std::error_code ignored;
    if (world.rank() == 0) std::filesystem::remove_all(between, ignored);
    throw;
  }
}

}  // namespace

namespace {

/// Throws IoError when a link would make the save write elsewhere.
void check_links(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& written) {
  try {
    for (const auto& path : written) must_stay_within(folder, path);
  } catch (const ConfigError& error) {
    throw IoError(error.what());
  }
}

/// A checkpoint of another run is not replaced by one of the same name.
void keep_other(const std::filesystem::path& checkpoint, const std::string& run) {
  const auto theirs = std::filesystem::exists(checkpoint) ? run_of(checkpoint) : "";
  if (theirs.empty() || theirs == run) return;
  const std::filesystem::path kept = checkpoint.string() + "_of_run_" + theirs;
  if (std::filesystem::exists(kept))
    throw IoError(text(checkpoint.string(), ": is of another run, and so is ", kept.string()));
  rename_or_exchange(checkpoint, kept);
}

}  // namespace

void save(const TrainingSetup& setup, ModelState& state, const Progress& progress) {
  const auto& world = setup.model.processes.world;
  const auto& o = setup.options;
  const bool as_megatron = o.ckpt_format == CheckpointFormat::torch;
  const auto root = as_megatron ? std::filesystem::path(o.output_dir) : checkpoint_folder(o);
  const CheckpointWriter writer(root, as_megatron ? "" : o.prefix, progress.iteration);
  attempt(world, writer, [&] {
    if (world.rank() > 0) return;
    auto written = as_megatron ? list_folder(writer.folder()) : std::vector<std::filesystem::path>();
    written.push_back(as_megatron ? writer.folder() : root);
    check_links(o.output_dir, written);
    if (!as_megatron) keep_other(writer.folder(), progress.run);
  });
  if (as_megatron && world.size() > 1) return save_together_as_megatron(setup, state, progress);
  if (as_megatron) return save_alone_as_megatron(setup, state, progress);
  save_own(setup, state, progress, writer);
  attempt(world, writer, [&] {
    if (world.rank() == 0) prune(root, o.prefix, static_cast<int>(o.keep_checkpoint_max), belongs_to(progress.run));
  });
}

std::filesystem::path save_weights(const Communicator& world, const std::filesystem::path& root, std::int64_t iteration,
                                   ModelState& state, const Blobs& blobs) {
  return save_together(
      world, CheckpointWriter(root, "", iteration), [&] { return state.weight_ranges(StateScope::owned); },
      [&] { return blobs; });
}

}  // namespace tessera
