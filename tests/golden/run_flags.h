#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::golden {

/// The command line of a recorded run.
class RunFlags {
 public:
  explicit RunFlags(const std::vector<std::string>& argv);
  /// From `arguments.json`.
  static RunFlags of(const std::filesystem::path& folder);

  bool has(const std::string& flag) const { return find(flag) != nullptr; }
  /// The values after `flag`; empty when it is not given or has none.
  std::vector<std::string> values(const std::string& flag) const;
  std::string value(const std::string& flag) const;  ///< the first of them, or ""
  /// All of it but these flags and their values.
  std::vector<std::string> without(const std::vector<std::string>& flags) const;
  /// Whether both say the same of each of these flags.
  bool agrees(const RunFlags& other, const std::vector<std::string>& flags) const;

 private:
  struct Given {
    std::string flag;
    std::vector<std::string> values;
  };
  const Given* find(const std::string& flag) const;
  std::vector<Given> given_;
};

/// What was decided where the run was recorded, and is decided again here.
struct RunPlaces {
  std::filesystem::path data;          ///< the folder that paths of data begin in, with tokenizers.json
  std::filesystem::path output;        ///< run folder; files of its tokenizer are made beside it
  std::filesystem::path load;          ///< a run folder or checkpoint to begin with; may be empty
  bool weights_alone = false;          ///< all else begins anew
  std::optional<std::int64_t> tokens;  ///< size of the vocabulary as the run's log tells it, when it does
  int threads = 2;                     ///< of each process
};

/// The recipe of a run by mappings/flags/megatron.yaml. Every step is logged, zeros are counted; files lie where
/// `places` says, whatever the flags say of them. Throws NotSupported, naming the flag, for one that is not known, not
/// built or whose value has no counterpart, and for what the recipe refuses.
recipe::Recipe recipe_of_run(const RunFlags& flags, const RunPlaces& places);

}  // namespace tessera::golden
