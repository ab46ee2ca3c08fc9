#pragma once

#include <string>

#include "framework/options/group.h"

namespace tessera::options {

/// A JSON Schema (draft 2020-12) of recipes, for editors and for programs that generate recipes.
///
/// It contains every option of `facts` with its type, limits, words, default and meaning; aliases, marked as
/// deprecated; for options not implemented yet, only the values that change nothing; `base`, keys that begin with x-,
/// and ${NAME} in place of any value. Unknown keys are rejected, also those of a type that the same file does not
/// choose. A file without `base` that has a model_config or gives the length of the run must contain the required keys.
///
/// Every valid recipe conforms to the schema. The converse does not hold: a file that conforms may violate a rule
/// between options or name a file that does not exist.
std::string json_schema(const Facts& facts);

/// `value` as JSON on one line. A scalar that reads as a number or a boolean becomes one; others become strings.
std::string json_text(const Value& value);

}  // namespace tessera::options
