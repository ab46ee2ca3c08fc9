#include "framework/report/event_marks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace tessera::report {
namespace {

constexpr std::size_t longest_words = 300;
constexpr std::size_t classes = 3;

/// The class of a kind of event, from 0, the most important; `classes` if it has no line.
std::size_t class_of(std::string_view kind) {
  if (is_failure(kind)) return 0;
  for (const std::string_view of_a_start : {"start", "restart", "went_back", "stopped", "finished"})
    if (kind == of_a_start) return 1;
  return kind == "note" || kind == "saved" ? classes : 2;
}

struct Placed {
  std::size_t event;
  std::int64_t iteration;
};

}  // namespace

std::vector<ChartMark> event_marks(const runs::RunReader& run, std::size_t most) {
  const auto& events = run.events().all();
  std::array<std::vector<Placed>, classes> by_class;  // newest first
  auto next = run.last_iteration();                   // where an event belongs that does not tell it; -1: unknown
  for (std::size_t e = events.size(); e-- > 0;) {
    const auto& event = events[e];
    const auto at = event.iteration.value_or(next);
    if (const auto its_class = class_of(event.kind); its_class < classes && at >= 0)
      by_class[its_class].push_back({e, at});
    if (event.kind == "start") next = at;
  }
  std::vector<Placed> chosen;
  for (const auto& all : by_class)
    for (std::size_t i = 0; i < all.size() && chosen.size() < most; ++i) chosen.push_back(all[i]);
  std::sort(chosen.begin(), chosen.end(), [](const Placed& a, const Placed& b) { return a.event < b.event; });
  std::vector<ChartMark> marks;
  for (const auto& placed : chosen) {
    const auto& event = events[placed.event];
    marks.push_back(
        {placed.iteration, event.kind, runs::told(event).substr(0, longest_words), event.iteration.has_value()});
  }
  return marks;
}

}  // namespace tessera::report
