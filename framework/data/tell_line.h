#pragma once

#include <functional>
#include <string>

namespace tessera::data {

/// A function that reports one line to the user; may be called from any thread. Empty: nothing is reported.
using TellLine = std::function<void(const std::string&)>;

}  // namespace tessera::data
