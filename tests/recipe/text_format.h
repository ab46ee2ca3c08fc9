#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/find.h"
#include "framework/checkpoint/format.h"

namespace tessera::recipe {

/// A stand-in for another program's format "torch" that writes the names of what each rank saves. What the core needs
/// of a format, it needs of this. A run folder of ours beside which there is FOLDER.key, the name of a key that this
/// format does not know, is read where that key is ignored.
class TextFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "text"; }
  std::string program() const override { return "text"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override {
    return std::filesystem::exists(folder.string() + ".key") ? std::optional(folder) : std::nullopt;
  }
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override {
    const auto& ignored = mappings.ignored_keys();
    if (std::find(ignored.begin(), ignored.end(), read_file(folder.string() + ".key")) == ignored.end())
      throw ConfigError(folder.string() + ": cannot be read back");
    return checkpoint::open_checkpoint(checkpoint::find_checkpoints(folder / "checkpoints", {}).front(), mappings);
  }
  bool saves() const override { return true; }
  void write_rank(const checkpoint::ForeignSave& save, const checkpoint::RankWeights&,
                  const checkpoint::StateSnapshot& state) const override {
    std::string names;
    for (const auto& range : state.ranges()) names += range.name + "\n";
    const auto folder = save.root / checkpoint::checkpoint_name("", save.iteration);
    make_folder(folder);
    write_file_atomic(folder / "names.txt", names);
  }
  std::filesystem::path finish(const checkpoint::ForeignSave& save) const override {
    write_file_atomic(save.root / checkpoint::tracker_name(""), std::to_string(save.iteration));
    return save.root / checkpoint::checkpoint_name("", save.iteration);
  }
};

}  // namespace tessera::recipe
