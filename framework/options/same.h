#pragma once

#include "framework/options/value.h"

namespace tessera::options {

/// Whether two values are equal: numbers and booleans by value (3e-4 equals 0.0003, True equals true), groups in any
/// order of their fields.
bool same(const Value& a, const Value& b);

}  // namespace tessera::options
