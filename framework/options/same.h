#pragma once

#include "framework/options/value.h"

namespace tessera::options {

/// Whether two values say the same, also 3e-4 and 0.0003, True and true.
bool same(const Value& a, const Value& b);

}  // namespace tessera::options
