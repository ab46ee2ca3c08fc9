#include "framework/training/loop/trainer.h"

#include "framework/base/clock.h"
#include "framework/kernels/scratch.h"
#include "framework/reporting/run_notes.h"
#include "framework/training/loop/run_saving.h"
#include "framework/training/loop/training_steps.h"

namespace tessera::training {

namespace {

/// A run between its start and its end; the implementation of train().
class Trainer {
 public:
  Trainer(TrainingSetup setup, const StopSignal& signal);
  RunEnd run();

 private:
  void tell_notes();
  void finish_earlier_step();
  RunEnd run_to_end();
  RunEnd save_and_end();
  RunEnd told_end(bool saved, bool done, const std::string& why);

  Run run_;
  RunReports reports_{run_};
  RunEvaluation evaluation_{run_, reports_};
  StateGuard guard_{run_, reports_, evaluation_};
  RunSaving saving_{run_, reports_, guard_};
  TrainingSteps steps_{run_, reports_, guard_};
};

Trainer::Trainer(TrainingSetup setup, const StopSignal& signal) : run_(std::move(setup), signal) {
  run_.participants.add({&steps_, &reports_, &saving_, &guard_, &evaluation_});
  const auto& documents = run_.setup.documents;
  run_.progress.run = run_.folder.begin(run_.restored.continues, run_.progress,
                                        reporting::with_notes(documents.resolved_recipe, documents.notes),
                                        documents.same_recipe, reports_.facts());
  delete_unfinished(run_.setup);
  reports_.open();
  reports_.tell_start();
  saving_.report_how_to_resume();
  tell_notes();
  steps_.prepare();
  if (run_.keeper.found()) {
    steps_.recover();
    guard_.state_was_sound();
  } else {
    run_.checks.seal();
    run_.begin_memory();
  }
  reports_.note(run_.keeper.take_notes());
  run_.faults.reach(0, resilience::Phase::start);
}

void Trainer::tell_notes() {
  const auto& o = run_.options;
  reports_.note(run_.folder.notes());
  if (o.async_save && o.save_interval.value_or(0) > 0 && !saves_while_training(run_.setup))
    reports_.note(text("training waits for each checkpoint in spite of training_config.async_save: ckpt_format ",
                       *o.ckpt_format, " is written from what ranks send to each other"));
  if (const auto& model = run_.setup.model; !model.trained.all())
    reports_.note(
        text(model.trained_parameters, " of ", model.parameters, " parameters are trained, the others are frozen"));
  reports_.note(run_.keeper.take_notes());
  reports_.note(run_.restored.notes);
}

/// What follows the last step of earlier processes.
void Trainer::finish_earlier_step() {
  if (!run_.numbers.stepped) return;
  run_.participants.call(&Participant::end_step);
  run_.participants.call(&Participant::save);
}

/// The launcher starts the processes no more: what they left in memory becomes a checkpoint.
RunEnd Trainer::save_and_end() {
  const auto iteration = run_.progress.iteration;
  if (run_.keeper.given_up() > iteration)
    return {worker::nothing_saved, text("the state after iteration ", run_.keeper.given_up(), " is lost; ",
                                        run_.last_checkpoint(), " is the newest checkpoint")};
  if (!saving_.save_now())
    return {worker::nothing_saved, text("iteration ", iteration, " could not be saved: ", saving_.problem())};
  reports_.tell_end("stopped", "the launcher does not start the run again; its state is saved");
  return {0, text("saved ", run_.last_checkpoint(), " after iteration ", run_.progress.iteration, " of ",
                  run_.options.training_iters, "; ", how_to_resume(run_.options, true))};
}

RunEnd Trainer::told_end(bool saved, bool done, const std::string& why) {
  const auto folder = run_.last_checkpoint();
  const auto iteration = run_.progress.iteration;
  if (!saved)
    return {worker::nothing_saved, text("iteration ", iteration, " could not be saved: ", saving_.problem(), "; ",
                                        run_.saved_last.empty() ? "there is no checkpoint" : "the last is " + folder)};
  if (done) {
    reports_.tell_end("finished", "");
    return {0, text("done: ", iteration, " iterations, ", folder)};
  }
  reports_.tell_end("stopped", why);
  return {0, text(why, " after iteration ", iteration, " of ", run_.options.training_iters, ", saved ", folder, "; ",
                  how_to_resume(run_.options, true))};
}

RunEnd Trainer::run_to_end() {
  kernels::forget_workspace();  // of measurements at the start
  release_freed_memory();
  if (run_.launcher.hands_over()) finish_earlier_step();
  if (run_.launcher.wants_checkpoint() || run_.launcher.hands_over()) return save_and_end();
  if (run_.launcher.only_finishes()) {
    reports_.tell_end("stopped", "the launcher asked for the last step to be completed");
    return {0, text("the state after iteration ", run_.progress.iteration, " is complete")};
  }
  const bool done_before = run_.is_complete() && !run_.numbers.stepped;
  run_.stop.agree();
  finish_earlier_step();
  run_.participants.call(&Participant::resumed);
  std::string why = run_.numbers.stepped ? run_.stop.reason(run_.progress.iteration) : "";
  bool done = false, saved = false;
  for (bool again = true; again;) {
    why = run_steps(steps_, run_.participants, why);
    if (run_.stop.asked()) why = run_.stop.reason(run_.progress.iteration);
    done = run_.is_complete();
    again = done && !guard_.state_was_sound();  // it was repaired, or the run went back
    if (again) continue;
    run_.launcher.expect_nothing();
    run_.participants.call(&Participant::stop, done && !done_before);
    saved = saving_.save_now();
    again = done && !run_.is_complete();
  }
  run_.launcher.expect_nothing();
  return told_end(saved, done, why);
}

RunEnd Trainer::run() {
  try {
    auto end = run_to_end();
    if (end.exit_code != 0 && !run_.launcher.present()) reports_.tell_end("failed", end.last_line);
    return end;
  } catch (const std::exception& error) {
    if (!run_.launcher.present()) reports_.tell_end("failed", error.what());  // it tells which rank failed, and why
    throw;
  }
}

}  // namespace

RunEnd train(TrainingSetup setup, const StopSignal& stop) { return Trainer(std::move(setup), stop).run(); }

}  // namespace tessera::training
