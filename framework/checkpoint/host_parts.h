#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

// Checkpoints whose writers are on hosts that share no folder: the folder of each host has the files of its own writers
// and the index of all. Manifest::hosts names the host of each part.

namespace tessera::checkpoint {

/// manifest.json and the blobs of a checkpoint folder, as one text for messages. Throws DamageError if something of it
/// is missing or was altered, or if it is no checkpoint of several writers; ConfigError for a newer format; IoError.
std::string pack_index(const std::filesystem::path& folder);

/// Names of hosts, by the names of the parts that they saved; empty if the writers had one folder. Throws as
/// pack_index.
std::map<std::string, std::string> hosts_of_parts(const std::filesystem::path& folder);

/// Of the parts in a packed index, those that are in `folder`: the manifest of the part has its checksum, and its files
/// have their full sizes. None if the folder is not there.
std::vector<bool> parts_in(const std::filesystem::path& folder, const std::string& packed);

/// Makes `folder` the folder of a host in the checkpoint with this index: it gets the index and the blobs. What
/// `<folder>_tmp` has is taken over with `take_unfinished`: files of a save that all writers had finished when this
/// host stopped. Throws IoError.
void adopt_index(const std::filesystem::path& folder, const std::string& packed, bool take_unfinished);

/// A phrase about the parts that are false in `found`: "2 of 4 parts, which were saved on node7 and node8".
std::string about_missing(const std::string& packed, const std::vector<bool>& found);

}  // namespace tessera::checkpoint
