#pragma once

#include <string>

#include "framework/options/group.h"

namespace tessera::options {

/// A JSON Schema of the recipe (draft 2020-12), for editors and for whoever writes recipes by a program.
///
/// It knows every option of `facts` with its type, limits, words, default and meaning; other spellings as deprecated;
/// of options not implemented yet the values that change nothing; `base`, keys that begin with x-, and ${NAME} in place
/// of any value. Keys that it does not know are refused, also those of a type that the same file does not choose. A
/// file that stands alone (no `base`) and says how long a run is, or has a model_config, must have the keys that a
/// recipe must have.
///
/// What it accepts may still break a rule between keys, or name what is not there; what a recipe may hold it accepts.
std::string json_schema(const Facts& facts);

}  // namespace tessera::options
