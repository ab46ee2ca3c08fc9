#pragma once

#include <mutex>
#include <string_view>
#include <vector>

#include "framework/log/log.h"

namespace tessera::log {

/// Guards everything that the log writes and its settings. Recursive: a message hides the status lines. Internal to
/// this component, like all of this header.
std::recursive_mutex& log_mutex();

/// All status lines that exist.
std::vector<StatusLine*>& shown_lines();

}  // namespace tessera::log
