#pragma once

#include <string>

#include "framework/options/group.h"

namespace tessera {

/// A JSON Schema of the recipe, for editors: types, defaults, limits, words and meanings of every option, also under
/// its other names. A ${NAME} may stand for any value.
std::string json_schema(const Facts& facts);

}  // namespace tessera
