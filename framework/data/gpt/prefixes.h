#pragma once

#include <string>
#include <vector>

namespace tessera::data {

/// What lies where the dataset `prefix` is missing, as the end of a message: a suffix too many, one of its two files
/// without the other, datasets with similar prefixes. Empty if both files are there.
std::string what_is_at_prefix(const std::string& prefix);

/// The prefixes of a folder's datasets, FOLDER/name of name.bin and name.idx, in the order of Megatron-LM's
/// tools/merge_datasets.py: sorted by name, byte by byte. `ignored` gets the names of other files. Throws ConfigError
/// if there is no such folder, no dataset in it, or one of a pair of files is missing.
std::vector<std::string> prefixes_in(const std::string& folder, std::vector<std::string>& ignored);

}  // namespace tessera::data
