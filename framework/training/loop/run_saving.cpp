#include "framework/training/loop/run_saving.h"

#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/saving.h"

namespace tessera::training {
namespace {

/// Sizes of all files of a checkpoint, which may be one file; 0 if they cannot be read.
std::int64_t bytes_in(const std::filesystem::path& checkpoint) {
  std::error_code unreadable;
  std::int64_t all = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint, unreadable))
    if (const auto size = entry.file_size(unreadable); entry.is_regular_file(unreadable) && !unreadable)
      all += static_cast<std::int64_t>(size);
  return all;
}

}  // namespace

/// State that only one host had is in danger until others have it again: it is saved before anything else. So are the
/// findings with which a run has gone back to a checkpoint.
void RunSaving::resumed() {
  const auto& found = run_.keeper.found();
  if ((found && found->any_is_lost) || (run_.restored.went_back && !run_.restored.is_saved)) save_now();
}

/// Megatron-LM saves before the batch grows.
void RunSaving::begin_iteration() {
  const auto micro_batches = run_.next_step().micro_batches;
  auto& before = run_.numbers.micro_batches;
  if (o_.save_interval.value_or(0) > 0 && before > 0 && micro_batches != before) save_now(false);
  before = micro_batches;
}

bool RunSaving::is_due(std::optional<std::int64_t> interval) const {
  return interval.value_or(0) > 0 && run_.progress.iteration % *interval == 0 && !run_.is_complete();
}

/// The last step is saved after the evaluations at the end: a run that is killed in between repeats them.
void RunSaving::save() {
  if (is_due(o_.save_interval))
    save_now(false);
  else if (o_.saves_non_persistent() && is_due(o_.non_persistent_save_interval))
    save_now(false, SaveKind::non_persistent);
}

void RunSaving::report_how_to_resume() const {
  if (run_.world.rank() == 0)
    run_.launcher.how_to_resume(how_to_resume(o_, run_.numbers.saved_at >= 0 || has_non_persistent_));
}

bool RunSaving::save_now(bool wait, SaveKind kind) {
  finish_pending();
  if (run_.numbers.saved_at == run_.progress.iteration) return true;
  const Stopwatch still;
  const bool opens = !wait && saves_while_training(run_.setup, kind);
  // What is damaged is not published: the state is checked now or, where updates check it, by the next one. A rank that
  // has hung since its step is found after the step's time-out, not after that of a checkpoint.
  const bool is_checked_later = opens && run_.checks.updates_agree();
  if (!is_checked_later && !guard_.state_was_sound() && run_.numbers.saved_at == run_.progress.iteration) return true;
  run_.wait_longest();
  run_.faults.reach(run_.progress.iteration, resilience::Phase::save);
  const auto iteration = run_.progress.iteration;
  save_began_ = Stopwatch();
  try {
    if (opens) {
      open_save_ = open_save(run_.setup, run_.state, run_.threads, run_.progress, kind);
      open_save_at_ = iteration;
      open_save_kind_ = kind;
      open_save_updates_ = run_.progress.updates;
      stood_still_ = still.seconds();
      if (!is_checked_later) open_save_->approve();
    } else {
      training::save(run_.setup, run_.state, run_.threads, run_.progress, kind);
      took_ = save_began_.seconds();
      stood_still_ = still.seconds();
      saved(iteration, kind);
      run_.commit();
    }
    return true;
  } catch (const IoError& error) {
    could_not_save(iteration, error);
    return false;
  }
}

void RunSaving::saved(std::int64_t iteration, SaveKind kind) {
  if (kind == SaveKind::persistent) {
    run_.numbers.saved_at = iteration;
    run_.saved_last = checkpoint_path(o_, run_.numbers.saved_at);
  } else {
    has_non_persistent_ = true;
    run_.saved_last = non_persistent_folder(o_) / checkpoint::checkpoint_name(o_.prefix, iteration);
  }
  report_how_to_resume();
  reports_.tell(text("saved ", run_.last_checkpoint()), "saved",
                {{"path", run_.last_checkpoint()},
                 {"format", kind == SaveKind::persistent ? o_.ckpt_format.value_or("tessera") : "tessera"},
                 {"bytes", reports_.log() ? bytes_in(run_.saved_last) : 0},
                 {"seconds", took_},
                 {"stall_seconds", stood_still_},
                 {"async", iteration == open_save_at_}});
  reports_.saved(iteration);
}

void RunSaving::could_not_save(std::int64_t iteration, const IoError& error) {
  problem_ = error.what();
  reports_.tell(text("could not save iteration ", iteration, ": ", error.what(), ". The last good checkpoint is ",
                     run_.last_checkpoint(), "; training continues"),
                "save_failed", {{"path", checkpoint_path(o_, iteration).string()}, {"message", error.what()}});
}

/// An update after the beginning of the save has verified what was saved, on all ranks.
void RunSaving::computed() {
  if (open_save_ && run_.progress.updates > open_save_updates_) open_save_->approve();
}

/// Lets a save that goes on make progress. Ranks learn of its end after different steps; what they do together does not
/// depend on it, and the journal is told with the next step, as a position is one that all ranks have reached.
void RunSaving::end_step() {
  if (open_save_ && open_save_->poll()) end_save(Stopwatch());
}

/// Waits for the end of a save that goes on. From here on all ranks have the same saved_at.
void RunSaving::finish_pending() {
  if (!open_save_) return;
  const Stopwatch still;
  // What the next update would have checked. Who uses the state next learns of damage by itself.
  if (!open_save_->approved()) state_checked(guard_.check());
  if (!open_save_) return;
  run_.wait_longest();
  if (!open_save_->poll() && !run_.is_complete() && !told_of_slow_saves_ && !run_.stop.asked()) {
    told_of_slow_saves_ = true;
    reports_.note(text("training waits for the checkpoint of iteration ", open_save_at_,
                       ", which is still being written; a longer save_interval avoids that"));
  }
  end_save(still);
}

/// Of the state that a save that goes on had at its beginning.
void RunSaving::state_checked(bool sound) {
  if (!open_save_) return;
  if (sound) return open_save_->approve();
  run_.wait_longest();
  open_save_->give_up("weights or optimizer state had changed in memory");
  end_save(Stopwatch());
}

void RunSaving::end_save(const Stopwatch& still) {
  const auto job = std::move(open_save_);
  try {
    job->finish();
    took_ = save_began_.seconds();
    stood_still_ += still.seconds();
    saved(open_save_at_, open_save_kind_);
  } catch (const IoError& error) {
    could_not_save(open_save_at_, error);
  }
  run_.state.watch(nullptr);
}

}  // namespace tessera::training
