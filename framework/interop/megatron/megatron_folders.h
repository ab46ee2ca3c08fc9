#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"

namespace tessera::megatron {

/// The folder of weights without an iteration, which a converter wrote: as Megatron-LM does, a run begins with them.
inline constexpr const char* release_folder = "release";

/// What a folder is to a format of Megatron-LM: nothing if it is none of its checkpoints; else why its save did not
/// come to its end, or "" if it did.
using JudgeFolder = std::function<std::optional<std::string>(const std::filesystem::path&)>;

/// The checkpoints of `format` in `root`, the folder of Megatron-LM's --save: its iter_* folders, newest first, and
/// last `release`.
std::vector<checkpoint::FoundCheckpoint> iterations_in(const std::filesystem::path& root,
                                                       const checkpoint::CheckpointFormat& format,
                                                       const JudgeFolder& judge);

/// Of these, the one that is loaded; see CheckpointFormat::find.
std::optional<std::filesystem::path> chosen_iteration(const std::filesystem::path& root,
                                                      std::vector<checkpoint::FoundCheckpoint> all);

/// The folder in which a save is written, <iteration>_tmp, until publish() gives it its name: a folder with the name of
/// a checkpoint is a whole one.
std::filesystem::path unfinished_folder(const checkpoint::ForeignSave& save);
/// An empty unfinished_folder(), without what a killed process left. Throws IoError.
void begin_folder(const checkpoint::ForeignSave& save);
/// Deletes the unfinished folder, if there is one.
void abandon_folder(const checkpoint::ForeignSave& save) noexcept;
/// Renames the unfinished folder, whose files are on the disk, in place of one that has its name, and writes the
/// tracker file. Returns the checkpoint's folder. Throws IoError, which says so if the checkpoint is complete and only
/// the tracker file could not be written.
std::filesystem::path publish(const checkpoint::ForeignSave& save);

}  // namespace tessera::megatron
