#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/data/parquet/parquet_footer.h"

namespace tessera::data {

/// A column of a Parquet file as a tree: a value, a structure of named values, a list, or a map. Levels are those of
/// the format (Dremel): a definition level says how much of a path is not null, a repetition level which list
/// continues.
struct ParquetNode {
  enum class Kind { leaf, structure, list, map };
  /// What the values of a leaf are in JSON.
  enum class Meaning { boolean, integer, unsigned_integer, number, string, unsupported };

  Kind kind = Kind::leaf;
  std::string name;         ///< as JSON key
  std::string path;         ///< names of the schema with dots between them: "conversations.list.element.value"
  int defined = 0;          ///< the value is not null from this definition level on
  int element_defined = 0;  ///< of lists and maps: there is an element from this definition level on
  int repeated = 0;         ///< of lists and maps: repetition level of the elements but the first
  std::vector<ParquetNode> children;  ///< of a structure its fields; of a list its element; of a map key and value

  // Of a leaf:
  std::size_t column = 0;  ///< its number among the leaves of the schema
  ParquetType type = ParquetType::bytes;
  Meaning meaning = Meaning::unsupported;
  std::string type_name;  ///< of an unsupported one, for messages
  int highest_definition = 0, highest_repetition = 0;
};

/// The top-level columns. Throws ConfigError if the elements are not a schema.
std::vector<ParquetNode> parquet_columns(std::span<const ParquetElement> elements);

/// The column `path`: the name of a top-level column, or names with dots between them that lead into structures, with
/// or without the schema's own "list.element": "conversations.value" of a list of structures is a list of their
/// fields `value`. The result has the name `path` and only the leaves asked for. Throws ConfigError, naming the
/// columns that exist, if there is none.
ParquetNode select_parquet_column(const std::vector<ParquetNode>& columns, const std::string& path);

/// Number of leaves below `node`, itself included.
std::size_t leaves_of(const ParquetNode& node);

}  // namespace tessera::data
