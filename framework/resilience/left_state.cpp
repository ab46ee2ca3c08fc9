#include "framework/resilience/left_state.h"

#include <algorithm>
#include <optional>

#include "framework/base/files.h"
#include "framework/resilience/state_file.h"

namespace tessera::resilience {
namespace {

std::optional<LeftState> read(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const auto front = StateFile::read_front(bytes);
    if (!front) return std::nullopt;
    const auto journal = StepJournal::read_state(bytes.subspan(StateFile::first_section));
    if (!journal) return std::nullopt;
    file.require_intact();
    return LeftState{front->key.rank, front->key.ranks, front->ready, *journal};
  } catch (const IoError&) {  // it is empty, or its tsrun is gone
    return std::nullopt;
  }
}

}  // namespace

std::vector<LeftState> left_states(const std::filesystem::path& folder) {
  std::vector<LeftState> all;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
    auto name = entry->path().filename().string();
    for (const std::string begin : {"state.held.", "state."})
      if (name.rfind(begin, 0) == 0) name.erase(0, begin.size());
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto state = read(entry->path())) all.push_back(*state);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return all;
}

std::int64_t step_of(const std::vector<LeftState>& states) {
  std::int64_t step = -1;
  for (const auto& state : states)
    if (state.ready) step = std::max({step, state.journal.committed, state.journal.intended});
  return step;
}

}  // namespace tessera::resilience
