#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"

namespace tessera::checkpoint {

/// `folder` itself if it is a checkpoint, also a damaged or unfinished one; else nothing.
std::optional<FoundCheckpoint> found_itself(const std::filesystem::path& folder, const CheckpointFormats& formats);

/// Finds the checkpoints that `folder` denotes, newest first: `folder` itself if it is a checkpoint; else those of a
/// run folder: of our own format with any prefix, in `checkpoints` and in the folder itself, and those of `formats`. As
/// for Megatron-LM, checkpoints of other programs after the one that the tracker file names are not the newest: they
/// come after the others, and unfinished ones last. Empty: there is none.
std::vector<FoundCheckpoint> find_any(const std::filesystem::path& folder, const CheckpointFormats& formats);
/// Whether `folder` is a checkpoint or holds one.
bool has_checkpoint(const std::filesystem::path& folder, const CheckpointFormats& formats);
/// The same as find_any. Throws ConfigError if there is none, or `folder` does not exist.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& folder, const CheckpointFormats& formats);

/// Puts checkpoints in the order of find_checkpoints, those of the same iteration as they are. `root`: the folder with
/// the tracker file; empty: it is not read.
void sort_newest_first(std::vector<FoundCheckpoint>& all, const std::filesystem::path& root);

/// A line for people if the tracker file in `root` names none of `all` or another one than `taken`, a checkpoint of
/// another program in `root`; else empty.
std::string about_tracker(const std::filesystem::path& root, const std::vector<FoundCheckpoint>& all,
                          const FoundCheckpoint& taken);

/// The id of the run of ours that saved the checkpoint in `folder`, in any format; empty if it does not say.
std::string run_of(const std::filesystem::path& folder);

/// Opens a checkpoint that find_checkpoints returned. Throws DamageError, ConfigError, IoError.
std::unique_ptr<OpenedCheckpoint> open_checkpoint(const FoundCheckpoint& found, const options::Mappings& mappings);

}  // namespace tessera::checkpoint
