#include "framework/cli/threads_argument.h"

#include "framework/base/cpu_limit.h"
#include "framework/options/limits.h"

namespace tessera::cli {

void ThreadsArgument::add_to(Command& command) {
  command.add_option("--threads", given_, "0: all usable cores")
      ->show_default()
      ->between(std::int64_t{0}, options::most_threads);
}

int ThreadsArgument::count() const { return given_ > 0 ? static_cast<int>(given_) : usable_core_count(); }

}  // namespace tessera::cli
