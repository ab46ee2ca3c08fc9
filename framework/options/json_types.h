#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "framework/options/group.h"

// The part of options/json_schema.h that knows types.

namespace tessera::options {

using Json = nlohmann::ordered_json;

/// A value as JSON: numbers and switches are such where they look like it.
Json json_of(const Value& value);
/// Whatever `option` takes: its type within its limits, its words, null, or of a planned one its neutral values; and
/// ${NAME} in place of any value.
Json json_type(const OptionFacts& option);
/// One item of the list `option`, in place of the whole list.
Json json_item(const OptionFacts& option);
/// The parts of a schema that `json_type` refers to, for "$defs".
Json json_definitions();

}  // namespace tessera::options
