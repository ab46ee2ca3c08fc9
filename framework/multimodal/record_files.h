#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/multimodal/record.h"

namespace tessera::multimodal {

/// The records of several files, one file after the other: JSON lists, JSON lines or Parquet. Files without compression
/// stay mapped; of the others, the records are held in memory. Thread-safe.
class RecordFiles {
 public:
  /// Takes the first `most` records; null: all. Throws ConfigError if a file cannot be read, has no record, or is no
  /// such file.
  RecordFiles(const std::vector<std::string>& files, std::optional<std::int64_t> most);

  std::int64_t records() const { return static_cast<std::int64_t>(entries_.size()); }
  /// Throws ConfigError, beginning with place(), if the record is not JSON; IoError if the file was truncated.
  Json record(std::int64_t index) const;
  /// "train.json:17, record 5": the line and the number of the record in its file, from 1; a list may be one line.
  std::string place(std::int64_t index) const;

 private:
  struct Source {
    std::string name;
    std::optional<MappedFile> mapped;
    std::int64_t first = 0;  // its first record
  };
  struct Entry {
    std::int64_t begin = 0, size = 0, line = 0;  // begin: in the mapped file, else in texts_
    std::int32_t source = 0;
  };
  void add(const std::string& file, std::optional<std::int64_t> most);
  std::string_view words(const Entry& entry) const;

  std::vector<Source> sources_;
  std::vector<Entry> entries_;
  std::string texts_;
};

/// Throws ConfigError if no record has the column of images, videos or system messages that `names` names. A single
/// record may lack it.
void must_have_columns(const RecordFiles& files, const RecordNames& names);

}  // namespace tessera::multimodal
