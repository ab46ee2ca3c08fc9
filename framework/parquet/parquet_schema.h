#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/parquet/parquet_footer.h"

namespace tessera::parquet {

/// A column of a Parquet file as a tree: a value, a structure of named values, a list, or a map. Levels are those of
/// the format (Dremel): the definition level tells which part of a path is not null, the repetition level which list
/// continues.
struct ParquetNode {
  enum class Kind { leaf, structure, list, map };
  /// JSON type of the values of a leaf.
  enum class Meaning { boolean, integer, unsigned_integer, number, string, unsupported };

  Kind kind = Kind::leaf;
  std::string name;         ///< name, used as JSON key
  std::string path;         ///< names of the schema with dots between them: "conversations.list.element.value"
  int defined = 0;          ///< smallest definition level at which the value is not null
  int element_defined = 0;  ///< for lists and maps: smallest definition level at which an element exists
  int repeated = 0;         ///< for lists and maps: repetition level of all elements except the first
  std::vector<ParquetNode> children;  ///< structure: fields; list: the element; map: key and value

  // Only for leaves:
  std::size_t column = 0;  ///< index among the leaves of the schema
  ParquetType type = ParquetType::bytes;
  Meaning meaning = Meaning::unsupported;
  std::string type_name;  ///< name of an unsupported type, for messages
  int highest_definition = 0, highest_repetition = 0;
};

/// Builds the top-level columns. Throws ConfigError if the elements are not a valid schema.
std::vector<ParquetNode> parquet_columns(std::span<const ParquetElement> elements);

/// Finds the column `path`: the name of a top-level column, or names separated by dots that lead into structures, with
/// or without the schema's own "list.element": "conversations.value" for a list of structures is a list of their fields
/// `value`. The result has the name `path` and only the requested leaves. Throws ConfigError, listing the columns, if
/// there is none.
ParquetNode select_parquet_column(const std::vector<ParquetNode>& columns, const std::string& path);

/// Number of leaves below `node`, itself included.
std::size_t leaves_of(const ParquetNode& node);

}  // namespace tessera::parquet
