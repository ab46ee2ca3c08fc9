#include "framework/watch/state_words.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/number_text.h"

namespace tessera::watch {

std::string state_words(const runs::RunStatus& status, double now) {
  using State = runs::RunStatus::State;
  const auto with = [&status](std::string words) {
    return status.reason.empty() ? words : text(words, ": ", status.reason);
  };
  switch (status.state) {
    case State::not_begun:
      return "not begun: no step is logged yet";
    case State::silent:
      return with(text("silent for ", duration_text(std::max(0.0, now - status.since))));
    case State::stopped:
      return with("stopped, can be resumed");
    case State::died:
      return status.reason.empty() ? "died; the root cause is not known" : with("died");
    default:
      return with(runs::state_name(status.state));
  }
}

std::string went_back_words(const runs::RunReader& run) {
  std::int64_t last = 0;
  std::string words;
  for (const auto& event : run.events().all()) {
    const bool starts = event.kind == "start";
    const auto at = event.iteration.value_or(last);
    if (starts && at < last)
      words = text("resumed at iteration ", at, " after ", last);
    else if (event.kind == "went_back")
      words = text("gone back to iteration ", event.words("to"), " after ", std::max(last, at));
    last = starts ? at : std::max(last, at);
  }
  return words;
}

std::optional<double> seconds_left(const runs::RunReader& run) {
  constexpr std::int64_t recent = 50;
  const auto last = run.last_iteration();
  const auto* seconds = run.axis(runs::RunAxis::seconds);
  if (seconds == nullptr || run.iterations() <= last || last < 1) return std::nullopt;
  // Curves keep no exact value of each step, so the rate is that over at least one column.
  const auto from = std::max(std::int64_t{0}, last - std::max(recent, 2 * seconds->width()));
  const auto begin = std::max(from, seconds->columns().front().first.x);
  const auto one = seconds->at(begin), other = seconds->at(last);
  if (!one || !other || last <= begin || !(*other > *one)) return std::nullopt;
  return (*other - *one) / static_cast<double>(last - begin) * static_cast<double>(run.iterations() - last);
}

std::string event_words(const runs::RunEvent& event) {
  const auto place = event.iteration ? text("iteration ", *event.iteration, "  ") : std::string();
  return text(place, event.kind, "  ", runs::told(event));
}

std::string run_mark(std::size_t run) {
  return run < 26 ? std::string(1, static_cast<char>('A' + static_cast<int>(run))) : "?";
}

}  // namespace tessera::watch
