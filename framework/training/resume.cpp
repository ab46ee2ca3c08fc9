#include "framework/training/resume.h"

#include <nlohmann/json.hpp>

#include "framework/checkpoint/hugging_face.h"
#include "framework/checkpoint/megatron.h"
#include "framework/checkpoint/writer.h"
#include "framework/comm/together.h"
#include "framework/options/yaml.h"

namespace tessera {
namespace {

constexpr const char* progress_blob = "progress.json";

using Json = nlohmann::json;

Json json_of(const ScheduleState& s) {
  return {{"max_lr", s.max_lr},
          {"min_lr", s.min_lr},
          {"lr_warmup_steps", s.lr_warmup_steps},
          {"lr_decay_steps", s.lr_decay_steps},
          {"lr_decay_style", s.lr_decay_style},
          {"num_steps", s.num_steps},
          {"start_wd", s.start_wd},
          {"end_wd", s.end_wd},
          {"wd_incr_steps", s.wd_incr_steps},
          {"wd_incr_style", s.wd_incr_style}};
}

ScheduleState schedule_of(const Json& json) {
  return {json.at("max_lr"),         json.at("min_lr"),       json.at("lr_warmup_steps"), json.at("lr_decay_steps"),
          json.at("lr_decay_style"), json.at("num_steps"),    json.at("start_wd"),        json.at("end_wd"),
          json.at("wd_incr_steps"),  json.at("wd_incr_style")};
}

std::string write(const Progress& progress, const Parts& parts) {
  Json json = {{"iteration", progress.iteration},
               {"updates", progress.updates},
               {"consumed_samples", progress.consumed_samples},
               {"skipped_samples", progress.skipped_samples},
               {"consumed_valid_samples", progress.consumed_valid_samples},
               {"seed", progress.seed},
               {"schedule", json_of(parts.schedule->state())}};
  if (const auto scale = parts.loss_scaler.state(); parts.loss_scaler.dynamic())
    json["loss_scale"] = {{"scale", OptionType<double>::write(scale.scale).scalar},  // as text: it may be inf
                          {"growth_tracker", scale.growth_tracker},
                          {"hysteresis_tracker", scale.hysteresis_tracker}};
  return json.dump(1);
}

/// What plays no part in the numbers of the run is not worth a refusal: lengths of a decay that is none.
ScheduleState without_idle_fields(ScheduleState saved, const ScheduleState& ours) {
  if (saved.lr_decay_style == "constant" && ours.lr_decay_style == "constant") {
    saved.min_lr = ours.min_lr;
    saved.lr_decay_steps = ours.lr_decay_steps;
  }
  if (saved.wd_incr_style == "constant" && ours.wd_incr_style == "constant") saved.wd_incr_steps = ours.wd_incr_steps;
  return saved;
}

/// Schedule and loss scale as they were saved; checkpoints of the first version have neither.
void restore_rates(const Json& json, Parts& parts) {
  auto& schedule = *parts.schedule;
  if (json.contains("schedule"))
    schedule.restore(without_idle_fields(schedule_of(json.at("schedule")), schedule.state()), parts.schedule_resume);
  else
    schedule.advance(json.at("consumed_samples"));
  if (json.contains("loss_scale")) {
    const auto& scale = json.at("loss_scale");
    parts.loss_scaler.restore(
        {std::stof(scale.at("scale").get<std::string>()), scale.at("growth_tracker"), scale.at("hysteresis_tracker")});
  }
}

Progress read_progress(const std::string& words, const std::filesystem::path& folder, Parts& parts) {
  const auto file = (folder / progress_blob).string();
  try {
    const auto json = Json::parse(words);
    Progress out;
    out.iteration = json.at("iteration");
    out.consumed_samples = json.at("consumed_samples");
    out.seed = json.at("seed");
    out.skipped_samples = json.value("skipped_samples", out.skipped_samples);
    out.consumed_valid_samples = json.value("consumed_valid_samples", std::int64_t{-1});
    if (parts.options.no_load_optim) return out;
    out.updates = json.value("updates", out.iteration);
    restore_rates(json, parts);
    return out;
  } catch (const Json::exception& error) {
    throw DamageError(text(file, ": ", error.what()));
  } catch (ConfigError& error) {
    error.during("going on from " + folder.string());
    throw;
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
Progress continue_from(const Checkpoint& checkpoint, Parts& parts, const ModelState& state,
                       std::vector<std::string>& notes) {
  const auto& o = parts.options;
  const CheckpointWeights source(checkpoint);
  const auto load = [&](const std::vector<TensorRange>& ranges) {
    read_all(checkpoint, read_other_paddings(source, ranges, parts.tokens, notes), o.crc_check);
  };
  load(state.weight_ranges());
  if (!o.no_load_optim) load(state.optimizer_ranges());
  auto progress = read_progress(checkpoint.blob(progress_blob), checkpoint.folder(), parts);
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  notes.push_back(text("going on from ", checkpoint.folder().string(), " after iteration ", progress.iteration));
  return progress;
}

/// load_checkpoint may name one checkpoint or a folder of them; what a conversion wrote has no prefix. Nothing where
/// the run's own folder has none yet and may begin anew.
std::optional<Checkpoint> open_given(const TrainingOptions& o) {
  const std::filesystem::path given = *o.load_checkpoint;
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
void begin_with(const WeightSource& source, const ModelState& state, std::span<const TensorRange> all,
                std::vector<std::string>& notes) {
  const auto changes = load_all(source, state.weight_ranges(), all);
  notes.insert(notes.end(), changes.begin(), changes.end());
  notes.push_back(text("beginning with the weights of ", source.folder().string()));
}

/// All that a run of Megatron-LM saved, as far as the options ask.
Progress continue_from(const MegatronCheckpoint& given, Parts& parts, const ModelState& state,
                       std::vector<std::string>& notes) {
  const auto& o = parts.options;
  const auto changes = load_all(given, state.weight_ranges(), parts.all_weights);
  notes.insert(notes.end(), changes.begin(), changes.end());
  if (!o.no_load_optim)
    for (const auto& range : read_other_paddings(given, state.optimizer_ranges(), parts.tokens, notes)) {
      if (!given.has(range.name) || given.shape(range.name) != range.global_shape)
        throw ConfigError(text(given.folder().string(), ": has no '", range.name, "' of ", range.global_shape,
                               "; give training_config.no_load_optim: true to begin with the weights alone"));
      given.read_box(range);
    }
  auto progress = read_progress(given.progress(), given.folder(), parts);
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  notes.push_back(text("going on from ", given.folder().string(), " after iteration ", progress.iteration));
  return progress;
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainingOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoints";
}

void load_weights(const Checkpoint& checkpoint, const ModelState& state, bool check_crc) {
  read_all(checkpoint, state.weight_ranges(), check_crc);
  state.weights_changed();
}

namespace {

/// The newest good checkpoint of the run folder, found by the first process (which sets damaged ones aside) for all.
std::optional<std::filesystem::path> find_own(const Parts& parts, std::int64_t& lost_at,
                                              std::vector<std::string>& notes) {
  const auto& world = parts.processes.world;
  const auto& o = parts.options;
  std::string found;
  together(world, "the search for checkpoints", [&] {
    if (world.rank() > 0) return;
    const auto told = [&](const CheckpointInfo& info, const std::string& reason, const std::filesystem::path& aside) {
      lost_at = std::max(lost_at, info.iteration);
      notes.push_back(
          text("checkpoint ", info.folder.string(), " is damaged: ", reason, "; set aside as ", aside.string()));
    };
    if (const auto good = newest_good(checkpoint_folder(o), o.prefix, o.crc_check, told)) found = good->folder();
  });
  found = world.broadcast(found, 0, "the checkpoint to go on from");
  if (found.empty()) return std::nullopt;
  return found;
}

/// Go on from the run folder's own checkpoints; false when it has none.
bool resume_own(Parts& parts, const ModelState& state, Restored& out) {
  const auto& o = parts.options;
  if (o.ckpt_format == CheckpointFormat::torch && is_megatron_folder(o.output_dir)) {
    together(parts.processes.world, "loading", [&] {
      out.progress = continue_from(MegatronCheckpoint(o.output_dir, Mappings()), parts, state, out.notes);
    });
    return true;
  }
  std::int64_t lost_at = -1;
  const auto found = find_own(parts, lost_at, out.notes);
  together(parts.processes.world, "loading", [&] {
    if (found) out.progress = continue_from(Checkpoint::open(*found), parts, state, out.notes);
  });
  if (lost_at >= 0)
    out.notes.push_back(text("the damage costs ", lost_at - out.progress.iteration, " steps, which are trained again"));
  if (!found && o.resume_training == Resume::always && !o.load_checkpoint)
    throw ConfigError(text("training_config.resume_training is true, but ", checkpoint_folder(o).string(),
                           " holds no usable checkpoint; give auto to begin anew, or load_checkpoint"));
  return found.has_value();
}

/// Begin with, or go on from, what load_checkpoint names.
void load_given(Parts& parts, const ModelState& state, Restored& out) {
  const auto& o = parts.options;
  if (is_hugging_face_folder(*o.load_checkpoint)) {
    begin_with(HuggingFaceModel(*o.load_checkpoint, Mappings()), state, parts.all_weights, out.notes);
    return;
  }
  if (is_megatron_folder(*o.load_checkpoint)) {
    const MegatronCheckpoint given(*o.load_checkpoint, Mappings());
    if (o.resume_training != Resume::never)
      out.progress = continue_from(given, parts, state, out.notes);
    else
      begin_with(given, state, parts.all_weights, out.notes);
    return;
  }
  const auto given = open_given(o);
  if (!given)
    out.notes.push_back(text("no checkpoint in ", *o.load_checkpoint, " yet: beginning anew"));
  else if (o.resume_training != Resume::never && given->blobs().count(progress_blob) != 0)
    out.progress = continue_from(*given, parts, state, out.notes);
  else
    begin_with(CheckpointWeights(*given), state, parts.all_weights, out.notes);
}

}  // namespace

Restored restore(Parts& parts, const ModelState& state, Threads& threads) {
  const auto& o = parts.options;
  Restored out;
  out.progress.seed = static_cast<std::uint64_t>(o.seed);
  if (o.resume_training != Resume::never && resume_own(parts, state, out)) {
    state.weights_changed();
    return out;
  }
  state.initialise(threads, static_cast<std::uint64_t>(o.seed));
  if (!o.load_checkpoint) return out;
  together(parts.processes.world, "loading", [&] { load_given(parts, state, out); });
  state.weights_changed();
  return out;
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
std::filesystem::path save_own(const Parts& parts, const ModelState& state, const Progress& progress,
                               const CheckpointWriter& writer) {
  const auto tensors = [&] {
    auto all = state.weight_ranges(ModelState::Ranges::saved);
    const auto slots = state.optimizer_ranges(ModelState::Ranges::saved);
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  };
  return save_together(parts.processes.world, writer, tensors, [&] {
    auto blobs = parts.files;
    blobs[progress_blob] = write(progress, parts);
    return blobs;
  });
}

MegatronLayout megatron_layout(const Parts& parts) {
  const auto& sizes = parts.processes.mesh.sizes();
  return {sizes.tensor, sizes.data, parts.plan.layers_by_chunk(), parts.data_parallel.use_distributed_optimizer};
}

void save_alone_as_megatron(const Parts& parts, const ModelState& state, const Progress& progress) {
  auto tensors = state.weight_ranges();
  const auto slots = state.optimizer_ranges();
  tensors.insert(tensors.end(), slots.begin(), slots.end());
  save_megatron(parts.options.output_dir, progress.iteration, tensors, write(progress, parts),
                parse_yaml(parts.resolved_recipe, "resolved.yaml"), parts.precision.params, Mappings());
}

/// By way of a checkpoint of our own, which every layout can save and every rank of Megatron's can read its part from:
/// state that replicas share, copies of heads and uneven cuts need no further thought.
void save_together_as_megatron(const Parts& parts, const ModelState& state, const Progress& progress) {
  const auto& world = parts.processes.world;
  const auto& place = parts.processes.place;
  const std::filesystem::path root = parts.options.output_dir, between = root / "before_megatron_tmp";
  const CheckpointWriter writer(between, "", progress.iteration);
  const auto work = [&] {
    const auto folder = save_own(parts, state, progress, writer);
    attempt(world, writer, [&] {
      if (place.data != 0 || place.context != 0) return;
      save_megatron_rank(root, Checkpoint::open(folder), write(progress, parts),
                         parse_yaml(parts.resolved_recipe, "resolved.yaml"), parts.precision.params, Mappings(),
                         megatron_layout(parts), place.tensor, place.pipeline);
    });
    attempt(world, writer, [&] {
      if (world.rank() != 0) return;
      finish_megatron(root, progress.iteration);
      std::filesystem::remove_all(between);
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

void save(const Parts& parts, const ModelState& state, const Progress& progress) {
  const auto& world = parts.processes.world;
  if (parts.options.ckpt_format == CheckpointFormat::torch) {
    if (world.size() > 1) return save_together_as_megatron(parts, state, progress);
    return save_alone_as_megatron(parts, state, progress);
  }
  const auto root = checkpoint_folder(parts.options);
  const CheckpointWriter writer(root, parts.options.prefix, progress.iteration);
  save_own(parts, state, progress, writer);
  attempt(world, writer, [&] {
    if (world.rank() == 0) prune(root, parts.options.prefix, static_cast<int>(parts.options.keep_checkpoint_max));
  });
}

std::filesystem::path save_weights(const Communicator& world, const std::filesystem::path& root, std::int64_t iteration,
                                   const ModelState& state, const Blobs& blobs) {
  return save_together(
      world, CheckpointWriter(root, "", iteration), [&] { return state.weight_ranges(ModelState::Ranges::saved); },
      [&] { return blobs; });
}

}  // namespace tessera
