#include "launch/tsrun/report.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "launch/tsrun/process.h"

namespace tessera::tsrun {

int WorkerEnd::exit_code() const {
  if (hung) return 1;
  if (signal != 0) return 128 + signal;
  return code != 0 ? code : 1;
}

int WorkerEnd::completed_steps() const {
  constexpr std::string_view word = ", iteration ";
  const auto at = place.rfind(word);
  if (at == std::string::npos) return -1;
  const auto* const end = place.data() + place.size();
  int iteration = 0;
  const auto [rest, error] = std::from_chars(place.data() + at + word.size(), end, iteration);
  return error == std::errc() && rest == end && iteration > 0 ? iteration - 1 : -1;
}

const WorkerEnd* root_cause(const std::vector<WorkerEnd>& ends) {
  const auto first = [&](auto holds) {
    const auto found = std::find_if(ends.begin(), ends.end(), holds);
    return found == ends.end() ? nullptr : &*found;
  };
  const auto own = [](const WorkerEnd& e) { return !e.good() && !e.alive && !e.lost_peer; };
  if (const auto* end = first([&](const WorkerEnd& e) { return own(e) && !e.left_mpi_init_silently(); })) return end;
  if (const auto* end = first(own)) return end;
  return first([](const WorkerEnd& e) { return !e.good() && !e.alive; });
}

std::string how_it_ended(const WorkerEnd& end) {
  if (end.alive || end.hung) return "hung: it did not enter the operation of the other ranks, and was stopped";
  if (end.for_memory)
    return text("was killed for memory (", signal_words(end.signal),
                "): this host or its cgroup has too little memory");
  if (end.signal != 0) return text("was ended by ", signal_words(end.signal));
  if (end.code == 0 && end.unfinished) return "ended with exit code 0 before its work was done";
  return text("ended with exit code ", end.code, end.in_mpi_init ? " inside MPI_Init" : "");
}

std::string story(const WorkerEnd& end, int workers) {
  std::string all = text("rank ", end.rank, " of ", workers, " on ", end.host);
  if (!end.place.empty()) all += text(" (", end.place, ")");
  all += text(" ", how_it_ended(end));
  if (!end.operation.empty()) all += text("\n  it was ", end.operation);
  if (!end.reason.empty()) all += text(end.reason[0] == '(' ? "\n  " : "\n  it said: ", end.reason);
  if (!end.log_problem.empty()) all += text("\n  its log is incomplete: ", end.log_problem);
  if (end.last_lines.empty()) return all + "\n  it has printed nothing";
  all += text("\n  its last ", end.last_lines.size(), " lines:");
  for (const auto& line : end.last_lines) all += text("\n  | ", line);
  return all;
}

}  // namespace tessera::tsrun
