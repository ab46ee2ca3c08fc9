// How the outcome of an Attempt is decided after its end.
#include <algorithm>

#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {
namespace {

constexpr std::size_t most_suspects = 3;

std::string lines_below(const std::vector<std::string>& lines, std::size_t most) {
  std::string all;
  for (std::size_t i = lines.size() > most ? lines.size() - most : 0; i < lines.size(); i++)
    all += text("\n  | ", lines[i]);
  return all;
}

/// The worker that reports refused input: the lowest rank that refused it itself and printed or reported something.
const WorkerEnd* refusal(const std::vector<WorkerEnd>& ends) {
  const WorkerEnd* chosen = nullptr;
  for (const auto& end : ends)
    if (!end.alive && end.code == 2 && !end.lost_peer && !(end.last_lines.empty() && end.reason.empty()) &&
        (chosen == nullptr || end.rank < chosen->rank))
      chosen = &end;
  return chosen;
}

/// Steps that were completed before the failure: as the root cause reported, else as another worker did; -1: unknown.
int completed_before_failure(const WorkerEnd* cause, const std::vector<WorkerEnd>& ends) {
  if (cause != nullptr && cause->completed_steps() >= 0) return cause->completed_steps();
  for (const auto& end : ends)
    if (end.completed_steps() >= 0) return end.completed_steps();
  return -1;
}

/// Returns the stopped workers that `waiting` names as missing; all stopped workers if it names none.
std::vector<const WorkerEnd*> waited_for(const WorkerEnd& waiting, const std::vector<WorkerEnd>& ends) {
  std::vector<const WorkerEnd*> alive, named;
  for (const auto& end : ends) {
    if (!end.alive) continue;
    alive.push_back(&end);
    if (waiting.reason.find(text("rank ", end.rank, " (process")) != std::string::npos) named.push_back(&end);
  }
  if (named.empty()) named = alive;
  named.resize(std::min(named.size(), most_suspects));
  return named;
}

}  // namespace

std::string Attempt::ranks_words(const std::vector<int>& ranks) const {
  std::string all = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); i++) {
    const auto host = job_.host_of(ranks[i]);
    const bool last_there = i + 1 == ranks.size() || job_.host_of(ranks[i + 1]) != host;
    all += std::to_string(ranks[i]);
    if (job_.hosts.size() > 1 && last_there) all += text(" on ", job_.hosts[host].host);
    if (i + 1 < ranks.size()) all += ", ";
  }
  return all;
}

/// Text for a failure that is not a worker's end: what happened, and what the suspected ranks were doing.
std::string Attempt::trouble_words() const {
  std::string all = trouble_;
  std::size_t told = 0;
  for (const auto& end : ends_)
    if (std::find(suspects_.begin(), suspects_.end(), end.rank) != suspects_.end() && told++ < most_suspects)
      all += text("\n", story(end, job_.workers));
  if (about_mpirun_ && !mpirun_lines_.empty()) all += "; it said:" + lines_below(mpirun_lines_, 20);
  return all;
}

/// How to resume the run, as reported by a worker; only one rank reports it.
std::string Attempt::resume_words() const {
  for (const auto& line : lines_)
    if (!line.resume.empty()) return line.resume;
  return "";
}

Outcome Attempt::stopped_verdict() const {
  Outcome outcome;
  outcome.kind = Outcome::Kind::stopped;
  outcome.code = good_ == lines_.size() ? 0 : 128 + asked_to_stop_;
  outcome.resume = resume_words();
  outcome.words = text("stopped by ", signal_words(asked_to_stop_), outcome.resume.empty() ? "" : "; ", outcome.resume);
  return outcome;
}

Outcome Attempt::verdict() {
  auto outcome = judged();
  for (const auto& end : ends_) outcome.held = std::max(outcome.held, end.held);
  outcome.lost_hosts.assign(lost_hosts_.begin(), lost_hosts_.end());
  outcome.host_lost = !lost_hosts_.empty();
  outcome.asked = asked_;
  if (asked_ && outcome.kind == Outcome::Kind::failed)
    outcome.words += "\nThe workers are not started again, because a signal asked the job to stop";
  outcome.regroups = regroups_ && !asked_ && outcome.kind == Outcome::Kind::stopped && outcome.code == 0;
  outcome.possible = possible_;
  const auto* cause = root_cause(ends_);
  if (!trouble_.empty())
    outcome.cause = trouble_;
  else if (cause != nullptr)
    outcome.cause = text("rank ", cause->rank, ' ', how_it_ended(*cause));
  if (outcome.kind == Outcome::Kind::failed) outcome.completed = completed_before_failure(cause, ends_);
  if (outcome.kind == Outcome::Kind::failed && cause != nullptr) outcome.rank = cause->rank, outcome.host = cause->host;
  return outcome;
}

Outcome Attempt::judged() {
  if (!failing_ && good_ == lines_.size() && asked_to_stop_ == 0) return {};
  const auto* cause = root_cause(ends_);
  if (asked_to_stop_ != 0 && (!failing_ || cause == nullptr || cause->signal == asked_to_stop_))
    return stopped_verdict();
  Outcome outcome;
  outcome.kind = Outcome::Kind::failed;
  outcome.resume = resume_words();
  if (cause != nullptr && cause->code == 2 && refusal(ends_) != nullptr) {
    outcome.refused = true;
    outcome.code = 2;
    const auto& said = *refusal(ends_);
    const bool on_screen = said.log_problem.empty() && !said.last_lines.empty() &&
                           logs_.shows(log_of(job_.hosts[job_.host_of(said.rank)], said.rank));
    const auto lines = said.last_lines.empty() ? std::vector<std::string>{said.reason} : said.last_lines;
    outcome.words = text("the program refused its input", on_screen ? " (see above)" : ":",
                         on_screen ? "" : lines_below(lines, 20));
    return outcome;
  }
  if (!trouble_.empty() || cause == nullptr) {
    outcome.code = 1;
    outcome.words = trouble_words();
    return outcome;
  }
  outcome.code = cause->exit_code();
  const auto hanging = cause->lost_peer ? waited_for(*cause, ends_) : std::vector<const WorkerEnd*>();
  for (const auto* end : hanging) outcome.words += text(story(*end, job_.workers), "\n");
  // mpirun ended by itself; the end of a worker that ended first may be a consequence.
  if (mpirun_ended_ != 0) outcome.words += "mpirun ended before the workers\n";
  outcome.words +=
      hanging.empty() ? story(*cause, job_.workers) : text("reported by rank ", cause->rank, ": ", cause->reason);
  return outcome;
}

}  // namespace tessera::tsrun
