#include "framework/base/start_threads.h"

#include <exception>

#include "framework/base/error.h"

namespace tessera {

// Not only std::system_error: the memory of a stack may be refused, too.
void start_threads(std::vector<std::thread>& threads, std::size_t count, const std::string& purpose,
                   const std::string& option, const std::function<void(std::size_t)>& work,
                   const std::function<void()>& end) {
  must(threads.empty(), "threads are started together");
  std::size_t started = 0;
  try {
    threads.reserve(count);
    for (; started < count; ++started) threads.emplace_back(work, started);
  } catch (const std::exception& error) {
    end();
    for (auto& thread : threads) thread.join();
    threads.clear();
    throw ConfigError(text(purpose, ": only ", started, " of ", count, " threads could be started (", error.what(),
                           "); allow this user or container more processes",
                           option.empty() ? "" : text(", or make ", option, " smaller")));
  }
}

}  // namespace tessera
