#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tessera {

/// Starts threads that run work(0) to work(count - 1), and appends them to `threads`. If the system refuses one, calls
/// `end`, after which those that were started must return, joins them, empties `threads`, and throws ConfigError, which
/// says of `purpose`, for example "dataset_config.num_workers", how many of `count` could be started.
void start_threads(std::vector<std::thread>& threads, std::size_t count, const std::string& purpose,
                   const std::function<void(std::size_t)>& work, const std::function<void()>& end);

}  // namespace tessera
