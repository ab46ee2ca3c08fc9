#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/error.h"

namespace tessera::kernels {

/// Throws ShapeError "rmsnorm: x has 7 values; expected 6" unless has == expected. `who` is the kernel, `what` the
/// argument.
inline void expect_values(const char* who, const char* what, std::size_t has, std::int64_t expected) {
  if (static_cast<std::int64_t>(has) != expected) {
    throw ShapeError(text(who, ": ", what, " has ", has, " values; expected ", expected));
  }
}

/// As expect_values, for a span that may be longer than needed: throws ShapeError unless has >= expected.
inline void expect_at_least(const char* who, const char* what, std::size_t has, std::int64_t expected) {
  if (static_cast<std::int64_t>(has) < expected) {
    throw ShapeError(text(who, ": ", what, " has ", has, " values; expected at least ", expected));
  }
}

}  // namespace tessera::kernels
