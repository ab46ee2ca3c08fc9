#pragma once

#include <filesystem>

#include "framework/checkpoint/manifest.h"

namespace tessera::checkpoint {

/// Writes `blobs` into <folder>/blobs, synced to disk, and adds their checksums to `manifest`. Throws IoError; BugError
/// for a name that is not allowed (see Blobs).
void write_blobs(const std::filesystem::path& folder, const Blobs& blobs, Manifest& manifest);
/// Reads the blobs that `manifest` names from <folder>/blobs. Throws DamageError if one is missing or damaged; IoError.
Blobs read_blobs(const std::filesystem::path& folder, const Manifest& manifest);
/// Reads <folder>/<name>. Throws DamageError if it is missing, or its size or checksum is not that of `file`; IoError.
std::string read_small_file(const std::filesystem::path& folder, const std::string& name,
                            const Manifest::SmallFile& file);
/// Throws DamageError if the file <folder>/<name> is missing or its size is not `bytes`; IoError if it cannot be
/// examined.
void check_size(const std::filesystem::path& folder, const std::string& name, std::uint64_t bytes);

/// Writes `blobs` into the folder of another program's checkpoint, which has no manifest of ours: the manifest of the
/// blobs is <folder>/blobs/manifest.json. Throws as write_blobs does.
void write_blobs_beside(const std::filesystem::path& folder, std::int64_t iteration, const Blobs& blobs);
/// Reads the blobs that write_blobs_beside wrote; empty if there are none. Throws as read_blobs does.
Blobs read_blobs_beside(const std::filesystem::path& folder);

}  // namespace tessera::checkpoint
