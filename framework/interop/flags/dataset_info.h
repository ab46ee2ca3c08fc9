#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::flags {

/// What LLaMA-Factory's dataset_info.json says of some of its data sets, as options of dataset_config.
struct DatasetInfo {
  std::vector<std::string> files;
  std::string handler_name;  ///< "AlpacaStylePairwiseHandler"
  std::string map_keys;      ///< JSON object; empty: the keys of the handler
  bool pairs = false;
};

/// The prompt type that renders texts as LLaMA-Factory's template `name` does; empty: none does, also where one has the
/// same name.
std::string prompt_type_of_template(const std::string& name);

/// Reads the entries `names` of `folder`/dataset_info.json. Throws ConfigError, naming file and entry, if the file is
/// damaged, an entry is missing or has settings that are not supported (judgements, pictures, columns of tools, a part
/// of the rows, a hub without a file), a file does not exist, or the entries differ in more than their files.
DatasetInfo read_dataset_info(const std::string& folder, const std::vector<std::string>& names);

}  // namespace tessera::flags
