#pragma once

#include <string>

#include "framework/base/error.h"

namespace tessera {

/// What the error says that `failing` throws; "no error" when it throws none.
template <class Failing>
std::string story_of(Failing failing) {
  try {
    failing();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline bool says(const std::string& story, const std::string& words) { return story.find(words) != std::string::npos; }

}  // namespace tessera
