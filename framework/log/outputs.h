#pragma once

#include <mutex>
#include <string_view>
#include <vector>

#include "framework/log/log.h"

namespace tessera::log {

/// Guards the log's outputs and settings. Recursive, because writing a message hides the status lines, which locks
/// again. Internal to this component, like everything in this header.
std::recursive_mutex& log_mutex();

/// All existing status lines. Guarded by log_mutex().
std::vector<StatusLine*>& shown_lines();

}  // namespace tessera::log
