#include <cerrno>
#include <cstring>
#include <fstream>

#include "framework/base/files.h"
#include "framework/comm/together.h"
#include "framework/training/loop/trainer_class.h"

namespace tessera::training {

/// Ends the run with an error that names what is wrong. Collective.
void Trainer::stop_at(const JudgedStep& judged, const std::string& why) {
  finish_save();
  const auto found =
      judged.bad == BadNumbers::not_finite ? ": " + work_.first_not_finite(progress_.consumed_samples) : "";
  throw Error(text("training: iteration ", progress_.iteration + 1, ": ",
                   words_of(judged.bad, judged.outcome, progress_.numbers), found, ". ", why,
                   "No weight was changed; the last checkpoint is ", last_checkpoint(),
                   ". Try a lower learning_rate or a longer warm-up"));
}

/// Whether a step may change weights; its numbers may be rejected, and stay so when it is computed again.
bool Trainer::accepts(const JudgedStep& judged) {
  for (const auto& line : judged.notes) note(line);
  if (o_.result_rejected_tracker_filename && world_.rank() == 0)
    for (const auto& result : judged.rejected) add_rejected(*o_.result_rejected_tracker_filename, result);
  if (judged.bad == BadNumbers::none) return true;
  const auto words =
      text("iteration ", progress_.iteration + 1, ": ", words_of(judged.bad, judged.outcome, progress_.numbers));
  const bool skips = setup_.resilience.bad_step == resilience::BadStep::skip;
  if (!skips && (judged.bad == BadNumbers::not_finite || o_.rerun_mode == RerunMode::disabled)) stop_at(judged);
  if (skips)
    tell(words + ". No weight is changed", "skipped",
         {{"first", progress_.iteration + 1}, {"last", progress_.iteration + 1}, {"reason", words}});
  else
    note(words + ". Training continues");
  return !skips;
}

/// Numbers were wrong in too many steps in a row: they are skipped from the newest checkpoint before them on.
void Trainer::roll_back_behind_bad_steps(const JudgedStep& judged) {
  finish_save();  // it may be the checkpoint to go back to
  const auto first = progress_.numbers.last_good + 1, last = progress_.iteration;
  auto& findings = progress_.findings;
  const auto row = text("The numbers of ", setup_.resilience.roll_back_after, " steps in a row were rejected");
  if (findings.roll_back_end >= first - 1 && findings.roll_back_end >= 0)
    stop_at(judged, text(row, ", also after iterations before them were skipped. "));
  if (findings.skip.ranges().size() >= checkpoint::IterationSet::most_ranges)
    stop_at(judged, text(row, ", and ", checkpoint::IterationSet::most_ranges, " times before. "));
  if (!can_go_back(setup_, progress_.run, first)) stop_at(judged, row + ", and there is no checkpoint before them. ");
  findings.skip.add(first, last + 1);
  findings.roll_back_end = last;
  note(text(row, ": iterations ", first + 1, " to ", last + 1,
            " are skipped, from the newest checkpoint before them on"));
  roll_back(first, row);
}

/// Adds the iterations of result_rejected_tracker_filename that are still to come to those that are skipped.
void Trainer::read_rejected() {
  if (!o_.result_rejected_tracker_filename) return;
  const std::filesystem::path file = *o_.result_rejected_tracker_filename;
  std::string lines;
  comm::together(world_, "training_config.result_rejected_tracker_filename", [&] {
    if (world_.rank() > 0) return;
    const std::ofstream out(file, std::ios::app);
    if (!out)
      throw ConfigError(text("training_config.result_rejected_tracker_filename: cannot append to ", file.string(), ": ",
                             std::strerror(errno), "; give a file that this process may write"));
    lines = read_file(file);
  });
  const auto found = iterations_to_skip(world_.broadcast(lines, 0, "the rejected results"));
  for (const auto& [begin, end] : found.ranges()) {
    if (end <= progress_.iteration) continue;
    progress_.findings.skip.add(begin, end);
    note(text(file.string(), ": iterations ", begin + 1, " to ", end, " are skipped"));
  }
}

/// Checks the state of all ranks, after the last update of each. False: some of it was wrong, and is repaired, or the
/// run went back to its newest checkpoint; gradients that were computed since are not to be used. Throws Error if there
/// is none.
bool Trainer::state_was_sound() {
  const auto found = checks_.check(progress_.iteration);
  for (const auto& line : found.notes) note(line);
  if (!found.sound || found.repaired)
    give_up_save();
  else
    approve_save();
  if (found.sound) return !found.repaired;
  if (!can_go_back(setup_, progress_.run, progress_.iteration))
    throw Error(text("training: ", found.problem,
                     ". Nothing of it was saved, and there is no checkpoint to go back to: test the ",
                     "memory of these hosts, and start again with training_config.save_interval"));
  note(found.problem + ": the run goes back to its newest checkpoint");
  roll_back(progress_.iteration, found.problem);
  return false;
}

/// Returns the run to its newest checkpoint that is not after iteration `back_to`; findings and open files stay as they
/// are now. The position is recorded first, so processes that are started after a failure return to it too. Called
/// between two steps, before keeper_.intend(). Collective.
void Trainer::roll_back(std::int64_t back_to, const std::string& reason) {
  const auto reached = progress_.iteration;
  finish_save();  // nothing but an update may change the state before
  wait_longest();
  auto kept = position();
  kept.back_to = back_to;
  keeper_.withdraw(kept);
  faults_.reach(progress_.iteration, resilience::Phase::roll_back);
  restored_ = restore_back(setup_, state_, progress_, back_to);
  for (const auto& line : restored_.notes) note(line);
  progress_ = restored_.progress;
  progress_.quarantine = quarantine_.found();
  last_ = restored_.folder;
  saved_at_ = restored_.is_saved ? progress_.iteration : -1;
  stepped_ = false;
  evaluation_done_ = true;
  micro_batches_ = 0;
  interval_.clear();
  log_.reset();
  comm::together(world_, "the reports", [&] { open_log(); });
  if (log_) log_->event("went_back", reached, {{"to", progress_.iteration}, {"reason", reason}});
  checks_.seal();
  keeper_.begin(progress_.iteration, position(), state_, threads_);
  if (keeper_.keeps()) launcher_.holds(progress_.iteration);
  faults_.reach(progress_.iteration, resilience::Phase::roll_back);
  save_after_loss();
}

}  // namespace tessera::training
