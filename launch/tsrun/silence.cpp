// Which workers of an Attempt are lost because their supervisors are silent.
#include <algorithm>
#include <cstdlib>

#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {

bool Attempt::everybody_is_silent() const {
  return lines_.size() > 1 && std::all_of(lines_.begin(), lines_.end(), [](const Line& line) {
           return line.connection.open() && line.connection.is_silent_for(suspicious_silence_seconds);
         });
}

/// Stores the process ids of the supervisors on this host.
void Attempt::find_supervisors() {
  for (const auto process : workers_below()) {
    const auto rank = std::strtoul(variable_of(process, "OMPI_COMM_WORLD_RANK").c_str(), nullptr, 10);
    if (rank < lines_.size() && runs_tsrun(process)) lines_[rank].supervisor = process;
  }
}

/// A worker whose supervisor is silent is lost. If all are silent at once, none of them is the cause, but probably the
/// machine: they have more time then, as has a supervisor on this host that cannot run.
void Attempt::check_silence() {
  const int limit = job_.options.host_time_out;
  const bool everybody = everybody_is_silent();
  std::vector<int> silent;
  double allowed = limit;
  for (auto& line : lines_) {
    if (!line.connection.open() || !line.connection.is_silent_for(limit + 1)) continue;
    if (line.supervisor == 0) find_supervisors();
    const double own = everybody ? held_up_factor * limit : silence_allowed(limit, line.supervisor);
    if (!line.connection.is_silent_for(own + 1)) continue;
    allowed = std::max(allowed, own);
    silent.push_back(line.rank);
  }
  if (silent.empty()) return;
  const auto who = everybody ? "all workers have" : text(ranks_words(silent), silent.size() == 1 ? " has" : " have");
  fail(text(who, " not responded for ", allowed, " s",
            allowed > limit ? "; is its supervisor (a tsrun process) stopped, or does it get no core?" : ""),
       {}, 0);
}

}  // namespace tessera::tsrun
