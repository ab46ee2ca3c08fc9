#pragma once

#include <cstdint>

#include "framework/cli/command.h"

namespace tessera::cli {

/// [--threads N] of a command that computes with a model.
class ThreadsArgument {
 public:
  void add_to(Command& command);
  /// The number of threads to use: N, or all usable cores if it is 0 or not given.
  int count() const;

 private:
  std::int64_t given_ = 0;
};

}  // namespace tessera::cli
