#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/error.h"

namespace tessera::kernels {

/// Throws ShapeError "rmsnorm: x has 7 values; 6 were promised" unless has == promised. `who` is the kernel, `what` the
/// argument.
inline void expect_values(const char* who, const char* what, std::size_t has, std::int64_t promised) {
  if (static_cast<std::int64_t>(has) != promised) {
    throw ShapeError(text(who, ": ", what, " has ", has, " values; ", promised, " were promised"));
  }
}

/// The same for a span that may be longer than what is used of it: throws unless has >= promised.
inline void expect_at_least(const char* who, const char* what, std::size_t has, std::int64_t promised) {
  if (static_cast<std::int64_t>(has) < promised) {
    throw ShapeError(text(who, ": ", what, " has ", has, " values; at least ", promised, " were promised"));
  }
}

}  // namespace tessera::kernels
