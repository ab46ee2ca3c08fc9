#pragma once

#include <stdexcept>
#include <string>

#include "framework/options/value.h"

namespace tessera {

/// The value at a path, "group.option". A test whose tree lacks it fails with that path instead of ending the program.
inline const options::Value& value_at(const options::Value& tree, const std::string& path) {
  const auto* value = tree.at(path);
  if (value == nullptr) throw std::out_of_range("the tree has no " + path);
  return *value;
}

}  // namespace tessera
