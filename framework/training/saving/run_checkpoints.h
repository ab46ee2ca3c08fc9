#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/find.h"
#include "framework/checkpoint/format.h"
#include "framework/comm/communicator.h"
#include "framework/training/options/training_options.h"

// The checkpoints in a run folder: their paths, and to which run they belong.

namespace tessera::training {

/// Folder in the run folder in which earlier versions saved a checkpoint before they converted it to another format; a
/// crash can have left it.
inline constexpr const char* before_conversion = "before_conversion_tmp";

/// Folder of non-persistent checkpoints in the run folder.
inline constexpr const char* non_persistent_name = "non_persistent";

/// Folder of the run's own checkpoints.
std::filesystem::path checkpoint_folder(const TrainingOptions& options);
/// Folder of the run's non-persistent checkpoints.
std::filesystem::path non_persistent_folder(const TrainingOptions& options);
/// Whether a path begins with that of the run folder; links are not followed.
bool is_in_run_folder(const TrainingOptions& options, const std::filesystem::path& path);
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

/// Returns whether the checkpoint in `folder` belongs to a run.
using BelongsToRun = std::function<bool(const std::filesystem::path& folder)>;
/// Accepts checkpoints of the run with id `run`, in any format, and those without an id.
BelongsToRun belongs_to(const std::string& run);
/// Accepts only checkpoints of the run with id `run`.
BelongsToRun saved_by(const std::string& run);
/// Renames a checkpoint that belongs to another run than `run`, so that a new one with the same name does not replace
/// it. Throws IoError if the new name is taken or renaming fails.
void keep_other(const std::filesystem::path& checkpoint, const std::string& run);
/// The same before the run saves in another program's format. What that program has saved whole under the name is
/// renamed, too, to "<name>_of_another_program".
void keep_other_of_format(const TrainingOptions& options, const checkpoint::CheckpointFormats& formats,
                          std::int64_t iteration, const std::string& run);

/// All checkpoints in the run folder, of any run, of our format and of those in which a run can save, newest first and
/// unfinished ones last; of one iteration, first that in the format of the run, and last the non-persistent one.
std::vector<checkpoint::FoundCheckpoint> checkpoints_of_folder(const TrainingOptions& options,
                                                               const checkpoint::CheckpointFormats& formats);
/// Of these, the finished ones that may belong to the run with id `run`; see belongs_to().
std::vector<checkpoint::FoundCheckpoint> finished_of(const std::string& run, const TrainingOptions& options,
                                                     const checkpoint::CheckpointFormats& formats);
/// Opens one of these, or, of our format, its index alone. Throws DamageError, ConfigError, IoError.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_found(const checkpoint::FoundCheckpoint& found,
                                                         const TrainingOptions& options,
                                                         const options::Mappings& mappings);
std::unique_ptr<checkpoint::OpenedCheckpoint> open_index_of(const checkpoint::FoundCheckpoint& found,
                                                            const TrainingOptions& options,
                                                            const options::Mappings& mappings);

/// Deletes the checkpoints of the run with id `run`, of all formats, that the options do not keep, and what a killed
/// process left of a save. Kept are the newest keep_checkpoint_max; of older ones those of a multiple of
/// save_retain_interval; always symbolic links, load_checkpoint, what another program saved, and the newest that can be
/// opened. Of non-persistent ones, the newest that can be opened and what is newer. A warning names what cannot be
/// deleted. Call it in one process, while none saves to the folder.
void delete_old(const TrainingOptions& options, const checkpoint::CheckpointFormats& formats,
                const options::Mappings& mappings, const std::string& run);

/// The same on a host with folders of its own, of checkpoints that are divided over hosts (divided_checkpoints.h).
void delete_old_of_host(const TrainingOptions& options, const options::Mappings& mappings, const std::string& run);

/// Result of the search for the newest good checkpoint of a run folder.
struct FoundNewest {
  std::optional<checkpoint::FoundCheckpoint> checkpoint;  ///< absent: there is none
  std::int64_t lost_at = -1;                              ///< newest iteration whose checkpoint is damaged; -1: none
};
/// Folders of checkpoints that other programs saved and that were found to be damaged while they were read, and what is
/// damaged. They keep their names.
using Unreadable = std::map<std::filesystem::path, std::string>;

/// Finds the newest good checkpoint, in any format, of the run with id `recorded` (from run.json). If `recorded` is
/// empty or has no checkpoints here: of the run that saved the newest one. Of our own format, only the index is judged,
/// unless `step` is given: what the checkpoint holds is verified as it is read. Rank 0 searches and sets damaged
/// checkpoints aside, except those of another program, which stay; its `notes` get messages about what was set aside or
/// ignored.
/// `step`: only that of this iteration, if there are any; later ones are set aside. Throws ConfigError if there are
/// only checkpoints of another program that cannot be read, or none of that iteration. Where the hosts have folders of
/// their own, the newest that they have whole together. `unreadable` ones are not there for it; throws
/// ConfigError about one of them if there are no others. Collective.
FoundNewest find_newest(const comm::Communicator& world, const TrainingOptions& options,
                        const checkpoint::CheckpointFormats& formats, const options::Mappings& mappings,
                        const std::string& recorded, std::vector<std::string>& notes,
                        std::optional<std::int64_t> step = {}, const Unreadable& unreadable = {});
/// Sets aside a checkpoint that find_newest() found, for the reason `damage`, with a message in the `notes` of rank 0.
/// Returns whether it did: what another program saved stays. Collective.
bool set_damaged_aside(const comm::Communicator& world, const checkpoint::FoundCheckpoint& found,
                       const std::string& damage, std::vector<std::string>& notes);

}  // namespace tessera::training
