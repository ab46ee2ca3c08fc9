#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/comm/communicator.h"
#include "framework/training/training_options.h"

// The checkpoints in a run folder: where they are, and to which run they belong.

namespace tessera::training {

/// Folder in a run folder for the checkpoint of our own format from which one of another program's format is written.
inline constexpr const char* before_conversion = "before_conversion_tmp";

/// Folder of the run's own checkpoints.
std::filesystem::path checkpoint_folder(const TrainingOptions& options);
/// Whether the run saves in another program's format, directly in output_dir.
bool saves_in_foreign_format(const TrainingOptions& options);
/// The checkpoint that `save` writes of that iteration, in the run's format.
std::filesystem::path checkpoint_path(const TrainingOptions& options, std::int64_t iteration);
/// The format of another program that the run saves in; null: our own. Throws ConfigError if it is not registered.
const checkpoint::CheckpointFormat* saving_format(const TrainingOptions& options,
                                                  const checkpoint::CheckpointFormats& formats);

/// Whether a checkpoint is one of those that the run of output_dir saved there, in any format.
bool is_of_run_folder(const TrainingOptions& options, const std::filesystem::path& checkpoint);

/// The checkpoints of the run with that id, and those that have no id.
checkpoint::BelongsToRun belongs_to(const std::string& run);
/// Only those of the run with that id.
checkpoint::BelongsToRun saved_by(const std::string& run);
/// A checkpoint of another run than `run` is renamed, so that it is not replaced by one of the same name. Throws
/// IoError.
void keep_other(const std::filesystem::path& checkpoint, const std::string& run);

/// What the search for the newest good checkpoint of a run folder found.
struct FoundNewest {
  std::optional<std::filesystem::path> folder;  ///< nothing: there is none
  std::int64_t lost_at = -1;                    ///< newest iteration whose checkpoint is damaged; -1: none is
};
/// The newest good checkpoint of our own format of the run that run.json names, `recorded`; if it names none, or one
/// without checkpoints here, of the run that saved the newest. Found by the first rank, which sets damaged ones aside.
/// Collective. `notes` of the first rank get what was set aside or passed over.
FoundNewest find_newest(const comm::Communicator& world, const TrainingOptions& options, const std::string& recorded,
                        std::vector<std::string>& notes);

}  // namespace tessera::training
