#pragma once

#include <cstddef>

namespace tessera {

/// Whether this is a build with AddressSanitizer or ThreadSanitizer, in which computation is several times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
inline constexpr bool sanitized = true;
#elif defined(__has_feature)  // Clang
inline constexpr bool sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool sanitized = false;
#endif

/// Of many inputs of one kind, a test takes one in so many: with sanitizers it would take half a minute and more. It is
/// prime, so that of inputs from nested loops no value of a loop is always left out.
inline constexpr int part_of_inputs = sanitized ? 7 : 1;

/// One in so many of the inputs, from the first on.
template <class Inputs>
Inputs part_of(const Inputs& all) {
  Inputs some;
  for (std::size_t i = 0; i < all.size(); i += part_of_inputs) some.push_back(all[i]);
  return some;
}

}  // namespace tessera
