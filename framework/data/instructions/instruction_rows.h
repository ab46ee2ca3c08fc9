#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::data {

/// The rows of files of instructions, one after the other: JSON lines, a JSON list, or Parquet; text also compressed.
/// Holds one row and one block of a file.
class InstructionRows {
 public:
  /// `columns`: of Parquet files, those that are read; empty: all. Patterns in `inputs` are expanded. Throws
  /// ConfigError if a pattern matches nothing.
  InstructionRows(const std::vector<std::string>& inputs, std::vector<std::string> columns);
  InstructionRows(const InstructionRows&) = delete;
  InstructionRows& operator=(const InstructionRows&) = delete;
  ~InstructionRows();

  struct Row {
    std::string json;  ///< not checked
    std::int64_t input = 0, line = 0;
  };
  /// False at the end. Throws ConfigError, naming file and line, if a file cannot be read or a list is not complete.
  bool next(Row& row);
  /// "corpus.json:17"
  std::string place(const Row& row) const;
  /// Bytes of the inputs, as stored, that were read, and all; 0 if that is not known.
  std::int64_t position() const;
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

}  // namespace tessera::data
