#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tessera {

/// Starts threads that run work(0) to work(count - 1); `threads` must be empty. If the system refuses one, calls `end`,
/// after which those that were started must return, joins them, empties `threads`, and throws ConfigError, which says
/// of `purpose`, such as "reading of records", how many of them could be started. `option` determines their number:
/// "dataset_config.num_workers"; empty: none does.
void start_threads(std::vector<std::thread>& threads, std::size_t count, const std::string& purpose,
                   const std::string& option, const std::function<void(std::size_t)>& work,
                   const std::function<void()>& end);

}  // namespace tessera
