#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/data/gpt/index_array.h"

namespace tessera::data {

/// Tells the user one line, from any thread; empty: nobody is told.
using TellLine = std::function<void(const std::string&)>;

/// Megatron-LM's cache of indices: <md5 of the description>-<class>-<split>-description.txt and one .npy file for each
/// array. What it wrote is used here and the other way round.
///
/// One process of each file system builds what is missing, under a lock beside the files; the others wait for it, and
/// if it dies, one of them takes over. Files get their names when they are complete, description.txt last. Afterwards
/// all map the same files.
class IndexCache {
 public:
  struct Options {
    std::filesystem::path folder;    ///< empty: everything stays in memory
    bool no_shared_storage = false;  ///< no host waits for another
    bool may_write = true;           ///< false: existing files are used, none is written
    TellLine tell = {};              ///< of waiting, of files that are not usable and of folders that are not writable
  };
  /// What an array must be.
  struct Expected {
    std::string name;  ///< "document_index"
    IndexType type;
    std::vector<std::int64_t> shape;
  };
  struct Request {
    std::string description;       ///< the text that the md5 is of
    std::string kind;              ///< "GPTDataset-train"
    std::vector<Expected> arrays;  ///< in the order in which `build` returns them
    std::function<std::vector<IndexArray>()> build;
    /// What is wrong with arrays of a cache, "" if nothing: what costs little to look at.
    std::function<std::string(const std::vector<IndexArray>&)> check;
  };
  struct Result {
    std::vector<IndexArray> arrays;
    bool built = false;  ///< by this process
  };

  explicit IndexCache(Options options);

  /// The arrays: mapped from a complete cache, else built, and written if the folder can be written. Files that do not
  /// fit the request are told of and rewritten. Throws what `build` throws.
  Result get(const Request& request) const;

 private:
  class Files;
  Result build(const Request& request, const Files& files) const;
  void tell(const std::string& line) const {
    if (options_.tell) options_.tell(line);
  }
  Options options_;
};

}  // namespace tessera::data
