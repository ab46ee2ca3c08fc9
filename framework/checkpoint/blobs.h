#pragma once

#include <filesystem>

#include "framework/checkpoint/manifest.h"

namespace tessera::checkpoint {

/// Write `blobs` into <folder>/blobs so that they survive a crash, and their checksums into `manifest`. Throws IoError.
void write_blobs(const std::filesystem::path& folder, const Blobs& blobs, Manifest& manifest);
/// The blobs that `manifest` names, from <folder>/blobs. Throws DamageError for one that is missing or damaged.
Blobs read_blobs(const std::filesystem::path& folder, const Manifest& manifest);
/// Throws DamageError when the file <folder>/<name> is missing or has not that many bytes.
void check_size(const std::filesystem::path& folder, const std::string& name, std::uint64_t bytes);

/// The same where no manifest stands beside them, in the folder of a checkpoint of another format: the manifest is
/// <folder>/blobs/manifest.json. Reading gives no blobs where there is none.
void write_blobs_beside(const std::filesystem::path& folder, std::int64_t iteration, const Blobs& blobs);
Blobs read_blobs_beside(const std::filesystem::path& folder);

}  // namespace tessera::checkpoint
