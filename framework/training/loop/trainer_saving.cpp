#include "framework/training/loop/trainer_class.h"
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

/// Saves the present state, unless that is done. `wait`: also if the run saves while it trains. Returns whether it is
/// saved, or being saved.
bool Trainer::save_now(bool wait, SaveKind kind) {
  finish_save();
  if (saved_at_ == progress_.iteration) return true;
  const Stopwatch still;
  const bool opens = !wait && saves_while_training(setup_, kind);
  // What is damaged is not published: the state is checked now or, where updates check it, by the next one. A rank that
  // has hung since its step is found after the step's time-out, not after that of a checkpoint.
  const bool is_checked_later = opens && checks_.updates_agree();
  if (!is_checked_later && !state_was_sound() && saved_at_ == progress_.iteration) return true;
  wait_longest();
  faults_.reach(progress_.iteration, resilience::Phase::save);
  const auto iteration = progress_.iteration;
  save_began_ = Stopwatch();
  try {
    if (opens) {
      open_save_ = open_save(setup_, state_, progress_, kind);
      open_save_at_ = iteration;
      open_save_kind_ = kind;
      open_save_updates_ = progress_.updates;
      open_save_approved_ = false;
      stood_still_ = still.seconds();
      if (!is_checked_later) approve_save();
    } else {
      save(setup_, state_, progress_, kind);
      stood_still_ = still.seconds();
      saved(iteration, kind);
      commit();
    }
    return true;
  } catch (const IoError& error) {
    could_not_save(iteration, error);
    return false;
  }
}

void Trainer::saved(std::int64_t iteration, SaveKind kind) {
  if (kind == SaveKind::persistent) {
    saved_at_ = iteration;
    last_ = checkpoint_path(o_, saved_at_);
  } else {
    has_non_persistent_ = true;
    last_ = non_persistent_folder(o_) / checkpoint::checkpoint_name(o_.prefix, iteration);
  }
  report_how_to_resume();
  tell(text("saved ", last_checkpoint()), "saved",
       {{"path", last_checkpoint()},
        {"format", kind == SaveKind::persistent ? o_.ckpt_format.value_or("tessera") : "tessera"},
        {"bytes", log_ ? bytes_in(last_) : 0},
        {"seconds", save_began_.seconds()},
        {"stall_seconds", stood_still_},
        {"async", iteration == open_save_at_}});
  report_saved(iteration);
}

void Trainer::could_not_save(std::int64_t iteration, const IoError& error) {
  save_problem_ = error.what();
  tell(text("could not save iteration ", iteration, ": ", error.what(), ". The last good checkpoint is ",
            last_checkpoint(), "; training continues"),
       "save_failed", {{"path", checkpoint_path(o_, iteration).string()}, {"message", error.what()}});
}

/// Lets a save that goes on make progress. Ranks learn of its end after different steps; what they do together does not
/// depend on it, and the journal is told with the next step, as a position is one that all ranks have reached.
void Trainer::poll_save() {
  if (open_save_ && open_save_->poll()) end_save(Stopwatch());
}

/// Waits for the end of a save that goes on. From here on all ranks have the same saved_at_.
void Trainer::finish_save() {
  if (!open_save_) return;
  const Stopwatch still;
  verify_save();
  if (!open_save_) return;
  wait_longest();
  if (!open_save_->poll() && progress_.iteration < o_.training_iters && !told_of_slow_saves_ && !stop_.asked()) {
    told_of_slow_saves_ = true;
    note(text("training waits for the checkpoint of iteration ", open_save_at_,
              ", which is still being written; a longer save_interval avoids that"));
  }
  end_save(still);
}

/// The state that a save that goes on had at its beginning is known to be sound.
void Trainer::approve_save() {
  if (!open_save_ || open_save_approved_) return;
  open_save_->approve();
  open_save_approved_ = true;
}

/// Checks now what the next update would have checked. Who uses the state next learns of damage by itself.
void Trainer::verify_save() {
  if (open_save_approved_) return;
  const auto found = checks_.check(progress_.iteration);
  for (const auto& line : found.notes) note(line);
  if (found.sound && !found.repaired)
    approve_save();
  else
    give_up_save();
}

/// The state was wrong while it was being written.
void Trainer::give_up_save() {
  if (!open_save_) return;
  wait_longest();
  open_save_->give_up("weights or optimizer state had changed in memory");
  end_save(Stopwatch());
}

/// `still`: since training stands still for that.
void Trainer::end_save(const Stopwatch& still) {
  const auto job = std::move(open_save_);
  try {
    job->finish();
    stood_still_ += still.seconds();
    saved(open_save_at_, open_save_kind_);
  } catch (const IoError& error) {
    could_not_save(open_save_at_, error);
  }
  state_.watch(nullptr);
}

}  // namespace tessera::training
