#pragma once

#include <string>
#include <vector>

namespace tessera::indexed {

/// Explains why the dataset `prefix` is missing, as the end of an error message: a superfluous suffix, one of the two
/// files without the other, datasets with similar prefixes. Empty if both files exist.
std::string what_is_at_prefix(const std::string& prefix);

/// The prefixes of all datasets in a folder, FOLDER/name for name.bin and name.idx, in the order of Megatron-LM's
/// tools/merge_datasets.py: sorted by name, byte by byte. `ignored` receives the names of other files. Throws
/// ConfigError if the folder does not exist, contains no dataset, or a .bin or .idx file lacks its counterpart.
std::vector<std::string> prefixes_in(const std::string& folder, std::vector<std::string>& ignored);

}  // namespace tessera::indexed
