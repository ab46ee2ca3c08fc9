#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::instructions {

/// Reads rows of instruction files one by one: JSON lines, a JSON list, or Parquet; text files may be compressed. Holds
/// one row and one block of a file in memory.
class InstructionRows {
 public:
  /// `inputs`: files; patterns are expanded. `columns`: the columns to read from Parquet files; empty: all. Throws
  /// ConfigError if a pattern matches nothing.
  InstructionRows(const std::vector<std::string>& inputs, std::vector<std::string> columns);
  InstructionRows(const InstructionRows&) = delete;
  InstructionRows& operator=(const InstructionRows&) = delete;
  ~InstructionRows();

  struct Row {
    std::string json;  ///< not validated
    std::int64_t input = 0, line = 0;
    std::int64_t begin = -1;  ///< of a text: offset of `json` in the input, decompressed
  };
  /// Reads the next row; returns false at the end. Throws ConfigError, naming file and line, if a file cannot be read
  /// or a list is incomplete.
  bool next(Row& row);
  /// "corpus.json:17"
  std::string place(const Row& row) const;
  /// Stored bytes of the inputs read so far, for progress.
  std::int64_t position() const;
  /// Stored size of all inputs, in bytes; 0 if unknown.
  std::int64_t size() const { return size_; }

 private:
  class Source;
  class Text;
  class Parquet;

  std::vector<std::string> inputs_, columns_;
  std::vector<std::int64_t> sizes_;
  std::int64_t input_ = -1, size_ = 0, before_ = 0;
  std::unique_ptr<Source> source_;
};

}  // namespace tessera::instructions
