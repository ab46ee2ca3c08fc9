#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"

namespace tessera::parquet {

/// Physical types of Parquet, with the codes of the format.
enum class ParquetType { boolean, int32, int64, int96, float32, float64, bytes, fixed_bytes };

/// One element of the schema, which the footer lists in depth-first order.
struct ParquetElement {
  enum class Repetition { required, optional, repeated };
  std::string name;
  Repetition repetition = Repetition::required;
  std::optional<ParquetType> type;  ///< none: a group
  std::int64_t children = 0;
  int converted = -1;     ///< ConvertedType of the format; -1: none
  int logical = 0;        ///< field number in the union LogicalType of the format; 0: none
  bool is_signed = true;  ///< for the logical type INTEGER
};

/// One column of one row group.
struct ParquetChunk {
  int codec = 0;
  std::optional<ParquetType> type;
  std::int64_t values = 0;  ///< number of values, including nulls
  std::uint64_t begin = 0;  ///< start of its pages in the file, in bytes
  std::uint64_t bytes = 0;  ///< size of its pages, compressed, including their headers
  std::string refused;      ///< why it cannot be read; empty: it can be read
};

struct ParquetRowGroup {
  std::int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  ///< in the order of the schema's leaves
};

struct ParquetFooter {
  std::int64_t rows = 0;
  std::vector<ParquetElement> elements;
  std::vector<ParquetRowGroup> groups;
};

/// Whether a file is Parquet: it begins with the format's magic number, and ends with it or is named *.parquet. False
/// also if it cannot be read.
bool is_parquet(const std::string& file);

/// Reads and checks the footer. Throws ConfigError, beginning with the file name, if the file is not Parquet, is
/// truncated, encrypted or damaged. Source of the format: apache/parquet-format, parquet.thrift.
ParquetFooter read_parquet_footer(const File& file);

}  // namespace tessera::parquet
