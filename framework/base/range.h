#pragma once

namespace tessera {

/// The half-open range [begin, end) of indices.
template <class T>
struct Range {
  T begin = 0, end = 0;

  T size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool contains(T index) const { return begin <= index && index < end; }
  bool operator==(const Range&) const = default;
};

}  // namespace tessera
