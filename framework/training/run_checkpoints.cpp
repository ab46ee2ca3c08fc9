#include "framework/training/run_checkpoints.h"

#include <algorithm>

#include "framework/base/files.h"
#include "framework/base/links.h"
#include "framework/comm/together.h"

namespace tessera::training {
namespace {

/// The id of the run that saved a checkpoint; empty where it does not say.
std::string run_of(const std::filesystem::path& checkpoint) {
  try {
    return checkpoint::read_progress(read_file(checkpoint / "blobs" / checkpoint::progress_blob),
                                     checkpoint::progress_blob)
        .run;
  } catch (const Error&) {
    return "";
  }
}

/// Those of the run that run.json names, `recorded`; where it names none, or one without checkpoints here, of the run
/// that saved the newest.
checkpoint::BelongsToRun own_checkpoints(const TrainingOptions& o, const std::string& recorded,
                                         std::vector<std::string>& notes) {
  const auto all = checkpoint::list_checkpoints(checkpoint_folder(o), o.prefix);
  const auto count = [&](const checkpoint::BelongsToRun& belongs) {
    return std::count_if(all.begin(), all.end(), [&](const auto& info) { return belongs(info.folder); });
  };
  auto own = belongs_to(recorded);
  if (!all.empty() && (recorded.empty() || count(own) == 0)) own = belongs_to(run_of(all.front().folder));
  if (const auto others = static_cast<std::ptrdiff_t>(all.size()) - count(own); others > 0)
    notes.push_back(text("ignored ", others, others == 1 ? " checkpoint" : " checkpoints", " of another run in ",
                         checkpoint_folder(o).string()));
  return own;
}

std::string told_aside(const std::filesystem::path& folder, const std::string& damage,
                       const std::filesystem::path& aside) {
  return text("checkpoint ", folder.string(), " is damaged: ", damage, "; set aside as ", aside.string());
}

}  // namespace

std::filesystem::path checkpoint_folder(const TrainingOptions& options) {
  return std::filesystem::path(options.output_dir) / "checkpoints";
}

bool saves_in_foreign_format(const TrainingOptions& options) {
  return options.ckpt_format && *options.ckpt_format != checkpoint::native_format;
}

std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration) {
  if (saves_in_foreign_format(options))
    return std::filesystem::path(options.output_dir) / checkpoint::checkpoint_name("", iteration);
  return checkpoint_folder(options) / checkpoint::checkpoint_name(options.prefix, iteration);
}

const checkpoint::CheckpointFormat* saving_format(const TrainingOptions& options,
                                                  const checkpoint::CheckpointFormats& formats) {
  return saves_in_foreign_format(options) ? &formats.named(*options.ckpt_format) : nullptr;
}

bool is_of_run_folder(const TrainingOptions& options, const std::filesystem::path& checkpoint) {
  const auto real = std::filesystem::canonical(checkpoint);
  const std::filesystem::path folder = options.output_dir;
  const bool is_iteration = real.filename().string().rfind("iter_", 0) == 0;
  return lies_within(checkpoint_folder(options), real) || std::filesystem::equivalent(real, folder) ||
         (is_iteration && std::filesystem::equivalent(real.parent_path(), folder));
}

checkpoint::BelongsToRun belongs_to(const std::string& run) {
  return [run](const std::filesystem::path& checkpoint) {
    const auto theirs = run_of(checkpoint);
    return theirs.empty() || theirs == run;
  };
}

checkpoint::BelongsToRun saved_by(const std::string& run) {
  return [run](const std::filesystem::path& checkpoint) { return !run.empty() && run_of(checkpoint) == run; };
}

void keep_other(const std::filesystem::path& checkpoint, const std::string& run) {
  const auto theirs = std::filesystem::exists(checkpoint) ? run_of(checkpoint) : "";
  if (theirs.empty() || theirs == run) return;
  const std::filesystem::path kept = checkpoint.string() + "_of_run_" + theirs;
  if (std::filesystem::exists(kept))
    throw IoError(text(checkpoint.string(), ": belongs to another run, and its new name is taken: ", kept.string()));
  rename_or_exchange(checkpoint, kept);
}

FoundNewest find_newest(const comm::Communicator& world, const TrainingOptions& options, const std::string& recorded,
                        std::vector<std::string>& notes) {
  FoundNewest out;
  std::string found;
  comm::together(world, "the search for checkpoints", [&] {
    if (world.rank() > 0) return;
    const auto told = [&](const checkpoint::CheckpointInfo& info, const std::string& reason,
                          const std::filesystem::path& aside) {
      out.lost_at = std::max(out.lost_at, info.iteration);
      notes.push_back(told_aside(info.folder, reason, aside));
    };
    const auto own = own_checkpoints(options, recorded, notes);
    if (const auto good = checkpoint::newest_index(checkpoint_folder(options), options.prefix, told, own))
      found = good->folder();
  });
  found = world.broadcast(found, 0, "the checkpoint to resume from");
  if (!found.empty()) out.folder = found;
  return out;
}

void set_damaged_aside(const comm::Communicator& world, const std::filesystem::path& folder, const std::string& damage,
                       std::vector<std::string>& notes) {
  comm::together(world, "a damaged checkpoint", [&] {
    if (world.rank() == 0) notes.push_back(told_aside(folder, damage, checkpoint::set_aside(folder, damage)));
  });
}

}  // namespace tessera::training
