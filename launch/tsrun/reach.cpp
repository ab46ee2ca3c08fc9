#include "launch/tsrun/reach.h"

#include <future>

#include "launch/tsrun/connection.h"

namespace tessera::tsrun {

std::vector<std::string> unreachable(const std::vector<Target>& targets) {
  constexpr double patience_seconds = 3;
  std::vector<std::future<std::string>> tries;
  for (const auto& target : targets)
    tries.push_back(std::async(std::launch::async, [&target] {
      std::string why;
      const auto end = connect_to({target.address, target.port}, patience_seconds, why);
      return end ? std::string() : text(target.words, ": ", why);
    }));
  std::vector<std::string> failed;
  for (auto& one : tries)
    if (auto story = one.get(); !story.empty()) failed.push_back(std::move(story));
  return failed;
}

}  // namespace tessera::tsrun
