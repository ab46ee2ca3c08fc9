#include "framework/training/resume.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr const char* progress_blob = "progress.json";

std::string write(const Progress& progress) {
  const nlohmann::json json = {
      {"iteration", progress.iteration}, {"consumed_samples", progress.consumed_samples}, {"seed", progress.seed}};
  return json.dump(1);
}

Progress read_progress(const Checkpoint& checkpoint) {
  try {
    const auto json = nlohmann::json::parse(checkpoint.blob(progress_blob));
    return {json.at("iteration"), json.at("consumed_samples"), json.at("seed")};
  } catch (const nlohmann::json::exception& error) {
    throw DamageError(text((checkpoint.folder() / progress_blob).string(), ": ", error.what()));
  }
}

void read_all(const Checkpoint& checkpoint, const std::vector<TensorRange>& ranges, bool check_crc) {
  checkpoint.must_fit(ranges);
  for (const auto& range : ranges) checkpoint.read(range, {check_crc, true});
}

/// All of it: weights, optimizer, counters, as far as the options ask.
Progress continue_from(const Checkpoint& checkpoint, const Parts& parts, const ModelState& state,
                       std::vector<std::string>& notes) {
  const auto& o = parts.options;
  load_weights(checkpoint, state, o.crc_check);
  if (!o.no_load_optim) read_all(checkpoint, state.optimizer_ranges(), o.crc_check);
  auto progress = read_progress(checkpoint);
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  notes.push_back(text("going on from ", checkpoint.folder().string(), " after iteration ", progress.iteration));
  return progress;
}

/// load_checkpoint may name one checkpoint or a folder of them.
Checkpoint open_given(const TrainingOptions& o) {
  const std::filesystem::path given = *o.load_checkpoint;
  if (std::filesystem::exists(given / "manifest.json")) return Checkpoint::open(given);
  for (const auto& folder : {given, given / "checkpoints"}) {
    const auto found = list_checkpoints(folder, o.prefix);
    if (!found.empty()) return Checkpoint::open(found.front().folder);
  }
  throw ConfigError(text("training_config.load_checkpoint: no checkpoint named ", checkpoint_name(o.prefix, 0),
                         " or later under ", given.string(),
                         "; give a checkpoint folder, or a folder that holds some (see training_config.prefix)"));
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainingOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoints";
}

void load_weights(const Checkpoint& checkpoint, const ModelState& state, bool check_crc) {
  read_all(checkpoint, state.weight_ranges(), check_crc);
}

Restored restore(const Parts& parts, const ModelState& state, Threads& threads) {
  const auto& o = parts.options;
  Restored out;
  out.progress.seed = static_cast<std::uint64_t>(o.seed);
  if (o.resume_training != Resume::never) {
    std::int64_t lost_at = -1;
    const auto told = [&](const CheckpointInfo& info, const std::string& reason, const std::filesystem::path& aside) {
      lost_at = std::max(lost_at, info.iteration);
      out.notes.push_back(
          text("checkpoint ", info.folder.string(), " is damaged: ", reason, "; set aside as ", aside.string()));
    };
    const auto found = newest_good(checkpoint_folder(o), o.prefix, o.crc_check, told);
    if (found) out.progress = continue_from(*found, parts, state, out.notes);
    if (lost_at >= 0)
      out.notes.push_back(
          text("the damage costs ", lost_at - out.progress.iteration, " steps, which are trained again"));
    if (found) return out;
    if (o.resume_training == Resume::always && !o.load_checkpoint)
      throw ConfigError(text("training_config.resume_training is true, but ", checkpoint_folder(o).string(),
                             " holds no usable checkpoint; give auto to begin anew, or load_checkpoint"));
  }
  state.initialise(threads, static_cast<std::uint64_t>(o.seed));
  if (!o.load_checkpoint) return out;
  const auto given = open_given(o);
  if (o.resume_training != Resume::never) {
    out.progress = continue_from(given, parts, state, out.notes);
  } else {
    load_weights(given, state, o.crc_check);
    out.notes.push_back(text("beginning with the weights of ", given.folder().string()));
  }
  return out;
}

void save(const Parts& parts, const ModelState& state, const Progress& progress) {
  auto tensors = state.weight_ranges();
  const auto slots = state.optimizer_ranges();
  tensors.insert(tensors.end(), slots.begin(), slots.end());
  auto blobs = parts.files;
  blobs[progress_blob] = write(progress);
  const auto root = checkpoint_folder(parts.options);
  save_checkpoint(root, parts.options.prefix, progress.iteration, tensors, blobs);
  prune(root, parts.options.prefix, static_cast<int>(parts.options.keep_checkpoint_max));
}

}  // namespace tessera
