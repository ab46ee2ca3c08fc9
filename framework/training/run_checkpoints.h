#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/comm/communicator.h"
#include "framework/training/training_options.h"

// The checkpoints in a run folder: their paths, and to which run they belong.

namespace tessera::training {

/// Folder in the run folder in which earlier versions saved a checkpoint before they converted it to another format; a
/// crash can have left it.
inline constexpr const char* before_conversion = "before_conversion_tmp";

/// Folder of the run's own checkpoints.
std::filesystem::path checkpoint_folder(const TrainingOptions& options);
/// Whether the run saves in another program's format, directly in output_dir.
bool saves_in_foreign_format(const TrainingOptions& options);
/// Path of the checkpoint of `iteration` that save() writes, in the run's format.
std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration);
/// The format of another program in which the run saves; null: Tessera's format. Throws ConfigError if it is not
/// registered.
const checkpoint::CheckpointFormat* saving_format(const TrainingOptions& options,
                                                  const checkpoint::CheckpointFormats& formats);

/// Whether a checkpoint was saved by the run of output_dir, in any format. Throws std::filesystem::filesystem_error if
/// a path does not exist.
bool is_of_run_folder(const TrainingOptions& options, const std::filesystem::path& checkpoint);

/// Accepts checkpoints of the run with id `run`, and those without an id.
checkpoint::BelongsToRun belongs_to(const std::string& run);
/// Accepts only checkpoints of the run with id `run`.
checkpoint::BelongsToRun saved_by(const std::string& run);
/// Renames a checkpoint that belongs to another run than `run`, so that a new one with the same name does not replace
/// it. Throws IoError if the new name is taken or renaming fails.
void keep_other(const std::filesystem::path& checkpoint, const std::string& run);

/// Result of the search for the newest checkpoint of a run folder.
struct FoundNewest {
  std::optional<std::filesystem::path> folder;  ///< absent: there is none
  std::int64_t lost_at = -1;                    ///< newest iteration whose checkpoint is damaged; -1: none
};
/// Finds the newest checkpoint in Tessera's format of the run with id `recorded` (from run.json) whose index is
/// undamaged; what it holds is verified as it is read. If `recorded` is empty or has no checkpoints here: of the run
/// that saved the newest one. Rank 0 searches and sets damaged checkpoints aside; its `notes` get messages about what
/// was set aside or ignored. Collective.
FoundNewest find_newest(const comm::Communicator& world, const TrainingOptions& options, const std::string& recorded,
                        std::vector<std::string>& notes);
/// Sets aside a checkpoint that find_newest() found, for the reason `damage`. Collective.
void set_damaged_aside(const comm::Communicator& world, const std::filesystem::path& folder, const std::string& damage,
                       std::vector<std::string>& notes);

}  // namespace tessera::training
