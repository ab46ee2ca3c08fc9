#pragma once

#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/report.h"

namespace tessera::flags {

/// The keys of a JSON file as flags, for a table with such keys: "text_decoder.num_layers" for num_layers in the map
/// text_decoder. Each item of a list is a value; null, and the text None, mean that a key is not given, unless its row
/// is nullable. Keys that decide whether the file is read come first. Of equal keys the last one counts, which is
/// noted. Problems: the file cannot be read, is not JSON, is not a JSON object or gives no key; all name file and line.
std::vector<GivenFlag> keys_of_file(const std::string& file, const FlagTable& table, options::Report& report);

/// `flags` and, behind each that names a file of keys, the keys of its file. The file is looked for where it is
/// written, then below the folder of `script` (may be empty) and the folders around it, then in that folder itself; a
/// note says where it was found, if not where it is written. Problems: those of keys_of_file, a missing file, a name
/// that is not known (${NAME}). Of a flag that is given twice the last counts.
std::vector<GivenFlag> with_keys_of_files(const std::vector<GivenFlag>& flags, const FlagTable& table,
                                          const std::string& script, options::Report& report);

}  // namespace tessera::flags
