#pragma once

#include <string>

#include "framework/base/json.h"
#include "framework/options/group.h"

// The part of options/json_schema.h that translates option types. Internal to this component.

namespace tessera::options {

/// `value` as JSON. A scalar that reads as a number or a boolean becomes one; other scalars become strings.
Json json_of(const Value& value);
/// The JSON Schema of the values that `option` accepts: its type within its limits, its words, null, or for a planned
/// option its neutral values; and ${NAME} in place of any value.
Json json_type(const OptionFacts& option);
/// The JSON Schema of one item of the list option `option`, for an alias that sets a single item.
Json json_item(const OptionFacts& option);
/// The definitions that the results of `json_type` refer to, for the schema's "$defs".
Json json_definitions();

}  // namespace tessera::options
