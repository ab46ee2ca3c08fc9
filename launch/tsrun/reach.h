#pragma once

#include <string>
#include <vector>

namespace tessera::tsrun {

/// A host that others try to reach: how to call it, and where it listens for that.
struct Target {
  std::string words, address;
  int port = 0;
};

/// Connects to all at once, for at most three seconds. Those that did not answer, as "b (10.77.0.2): Connection timed
/// out".
std::vector<std::string> unreachable(const std::vector<Target>& targets);

}  // namespace tessera::tsrun
