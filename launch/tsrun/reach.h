#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// An address that other hosts try to connect to. `words`: how messages name the host.
struct Target {
  std::string words, address;
  int port = 0;
};

/// Connects to all targets at the same time and waits for at most 3 s. Returns one line for each target that could not
/// be reached, for example "b (10.77.0.2): Connection timed out".
std::vector<std::string> unreachable(const std::vector<Target>& targets);

}  // namespace tessera::tsrun
