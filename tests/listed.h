#pragma once

#include <span>
#include <type_traits>
#include <vector>

namespace tessera {

/// The elements of a field, to be compared and printed.
template <class T>
std::vector<std::remove_const_t<T>> listed(std::span<T> field) {
  return {field.begin(), field.end()};
}

}  // namespace tessera
