#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/parquet/parquet_column.h"

namespace tessera::parquet {

/// Receives the values of a row in order.
class ParquetSink {
 public:
  virtual ~ParquetSink() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;
  virtual void unsigned_integer(std::uint64_t value) = 0;
  virtual void number(double value) = 0;
  /// UTF-8; valid during the call.
  virtual void string(std::string_view value) = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void begin_structure() = 0;
  /// Name of the field whose value follows.
  virtual void key(std::string_view name) = 0;
  virtual void end_structure() = 0;
};

/// Reads columns of an Apache Parquet file row by row. Holds one page of each column and its dictionary in memory, so a
/// file can have any size. Supported: data pages of both versions; values that JSON has (texts, booleans, integers,
/// finite numbers, and lists, structures and maps of them); encodings PLAIN, dictionary, RLE and DELTA; Snappy, gzip,
/// Zstandard. Everything else causes a ConfigError that names it. docs/data.md describes this for users.
class ParquetReader {
 public:
  /// `columns`: names as select_parquet_column() takes them; empty: all columns of the file. Throws
  /// ConfigError, beginning with the file name, if the file cannot be read, is not Parquet or is damaged, and if a
  /// column does not exist, is given twice or has an unsupported type.
  ParquetReader(const std::string& name, std::span<const std::string> columns, const ParquetLimits& limits = {});

  /// Passes the next row to `sink`, as one structure with a field per column; returns false at the end. Throws
  /// ConfigError with place() if the file is damaged, or a value is not valid UTF-8 or not a finite number.
  bool next(ParquetSink& sink);

  const std::string& name() const { return name_; }
  const std::vector<ParquetNode>& columns() const { return columns_; }
  std::int64_t rows() const { return footer_.rows; }
  /// Rows that next() has returned.
  std::int64_t rows_read() const { return row_; }
  /// The row that next() returned last, "corpus.parquet: row group 3, row 1234", both counted from 0; the row is
  /// counted over the whole file.
  std::string place() const;
  /// Approximate number of bytes of the file that were read; for progress.
  std::int64_t position() const;
  /// Size of the file, in bytes.
  std::int64_t size() const { return static_cast<std::int64_t>(file_.size()); }

 private:
  void begin_group();
  void check_row_begins();
  void read(const ParquetNode& node, std::size_t first, ParquetSink& sink);
  void read_elements(const ParquetNode& node, std::size_t first, ParquetSink& sink);
  void read_leaf(const ParquetNode& node, ParquetColumn& column, ParquetSink& sink);
  void skip_null(const ParquetNode& node, std::size_t first, int definition);
  void count_bytes(std::size_t bytes);
  [[noreturn]] void refuse(const std::string& message) const;

  std::string name_;
  File file_;
  ParquetLimits limits_;
  ParquetFooter footer_;
  std::vector<ParquetNode> columns_;
  std::deque<ParquetColumn> leaves_;       // of all columns, in order; a deque keeps references valid
  std::vector<std::size_t> leaf_columns_;  // index of each leaf in the file
  std::size_t group_ = 0;                  // index of the next row group
  std::int64_t left_in_group_ = 0, row_ = 0, row_bytes_ = 0;
};

/// Throws ConfigError if a column of `reader` holds neither texts nor lists of texts.
void must_hold_texts(const ParquetReader& reader);

/// Reads rows of a Parquet file as documents: for each key, the texts of one column.
class ParquetTexts {
 public:
  /// `keys`: columns of strings or of lists of strings. Throws ConfigError as ParquetReader does, and if a column has
  /// another type.
  ParquetTexts(const std::string& name, std::span<const std::string> keys, const ParquetLimits& limits = {});

  /// Reads the next document; returns false at the end. `texts` becomes one list for each key: of one text, or of the
  /// texts of the row's list. Throws ConfigError, naming file, row group and row, as ParquetReader::next does, and for
  /// null.
  bool next(std::vector<std::vector<std::string>>& texts);

  const std::string& name() const { return reader_.name(); }
  std::int64_t rows() const { return reader_.rows(); }
  std::string place() const { return reader_.place(); }
  std::int64_t position() const { return reader_.position(); }
  std::int64_t size() const { return reader_.size(); }

 private:
  ParquetReader reader_;
};

}  // namespace tessera::parquet
