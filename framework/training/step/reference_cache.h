#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "framework/base/files.h"
#include "framework/model/reference_scores.h"

namespace tessera::training {

/// Files with the log-probabilities of rows in one reference model, one for each process that computes them. Each is a
/// list of records of 24 bytes: the hash of a row, its sum (a double), the CRC-32C of both, and zeros. A record that is
/// not whole is ignored, with all after it.
class ReferenceCache {
 public:
  /// Adds the records of all files in `folder` to `scores`, and creates a file for those of this process. `judges`:
  /// this process has the loss; others read and write nothing. `writes`: of the processes with the same values, this
  /// one stores them. `tell` gets what the user should know of add(). Throws IoError.
  ReferenceCache(const std::filesystem::path& folder, const std::string& process, bool judges, bool writes,
                 const model::ReferenceScores& scores, std::function<void(const std::string&)> tell);
  bool judges() const { return judges_; }
  /// Appends records. If that fails, as on a full disk, this process stores no more: what is not stored is computed
  /// again by later ones.
  void add(std::span<const model::ReferenceScores::Entry> entries);

 private:
  bool judges_;
  std::function<void(const std::string&)> tell_;
  std::optional<File> file_;
};

}  // namespace tessera::training
