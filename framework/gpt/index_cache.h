#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "framework/data/tell_line.h"
#include "framework/gpt/index_array.h"

namespace tessera::gpt {

/// Megatron-LM's cache of indices: <md5 of the description>-<class>-<split>-description.txt and one .npy file per
/// array. Megatron-LM's files can be used here and vice versa.
///
/// One process of each file system builds a missing index, under a lock file beside the index files; the others wait
/// for it, and if it dies, one of them takes over. Files are renamed to their final names when they are complete,
/// description.txt last. Then all processes map the same files.
///
/// Megatron-LM's files do not tell of which data they were made. <md5>-<class>-<split>-checked.txt beside them does: it
/// has a checksum of the source, and one of a part of the entries. Files without it, or with other checksums, are used
/// if a check of every entry finds nothing wrong; then it is written.
class IndexCache {
 public:
  struct Options {
    std::filesystem::path folder;    ///< empty: indices are kept in memory only
    bool no_shared_storage = false;  ///< hosts do not wait for each other
    bool may_write = true;           ///< false: existing files are used, but none is written
    data::TellLine tell = {};        ///< receives messages about waiting, unusable files and read-only folders
  };
  /// The expected name, type and shape of an array.
  struct Expected {
    std::string name;  ///< "document_index"
    IndexType type;
    std::vector<std::int64_t> shape;
  };
  struct Request {
    std::string description;       ///< the text whose MD5 names the files
    std::string kind;              ///< "GPTDataset-train"
    std::vector<Expected> arrays;  ///< in the order in which `build` returns them
    std::function<std::vector<IndexArray>()> build;
    /// Checks every entry of cached arrays: returns what is wrong with them, "" if nothing is. Null: no check.
    std::function<std::string(const std::vector<IndexArray>&)> check = {};
    /// A checksum of what the arrays are made of, beside the description; only with `check`.
    std::function<std::uint32_t()> source_sum = {};
  };
  struct Result {
    std::vector<IndexArray> arrays;
    bool built = false;  ///< this process built them
  };

  explicit IndexCache(Options options);

  /// Returns the arrays: mapped from a complete cache; else built, and written if the folder is writable. Files that do
  /// not match the request are reported and rewritten. Throws what `build` throws.
  Result get(const Request& request) const;

 private:
  class Files;
  Result build(const Request& request, const Files& files) const;
  void tell(const std::string& line) const {
    if (options_.tell) options_.tell(line);
  }
  Options options_;
};

}  // namespace tessera::gpt
