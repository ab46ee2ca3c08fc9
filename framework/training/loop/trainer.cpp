#include "framework/training/loop/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "framework/base/clock.h"
#include "framework/base/cpu_limit.h"
#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/base/system_call.h"
#include "framework/base/trace.h"
#include "framework/comm/together.h"
#include "framework/kernels/scratch.h"
#include "framework/reporting/run_notes.h"
#include "framework/training/loop/trainer_class.h"
#include "framework/training/saving/rates.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/saving.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::training {
namespace {

int thread_count(const TrainingSetup& setup) {
  const auto cores = setup.model.processes.cores;
  const auto all = cores > 0 ? cores : usable_core_count();
  return static_cast<int>(setup.options.num_threads.value_or(all));
}

}  // namespace

Trainer::Trainer(TrainingSetup setup, const StopSignal& stop)
    : setup_(std::move(setup)),
      o_(setup_.options),
      world_(setup_.model.processes.world),
      folder_(world_, o_, setup_.documents.formats),
      profiler_(setup_.profile, setup_.model.processes, o_.output_dir),
      threads_(thread_count(setup_)),
      keeper_(setup_),
      state_(keeper_.make_state()),
      checks_(setup_, keeper_, state_, threads_),
      restored_(restored_state()),
      progress_(restored_.progress),
      quarantine_(setup_.data, world_, o_.output_dir),
      work_(setup_.model, setup_.optimization, setup_.data, state_, threads_, progress_.seed),
      evaluator_(setup_, work_),
      auxiliary_(work_.auxiliary().extents(), setup_.optimization.objective->metrics()),
      faults_(setup_.resilience.inject_fault, world_.rank(), worker::full_world(world_.size()), worker::start_of_job()),
      step_time_out_(setup_.resilience.step_time_out, longest_wait()),
      stragglers_(setup_.resilience.straggler_ratio, world_.size(), setup_.model.processes.place.pipeline, host_name()),
      measured_memory_(world_.size()),
      stop_(o_, stop, world_) {
  progress_.run = folder_.begin(restored_.continues, progress_.run,
                                reporting::with_notes(setup_.documents.resolved_recipe, setup_.documents.notes),
                                setup_.documents.same_recipe, run_facts());
  delete_unfinished(setup_);
  if (restored_.is_saved) saved_at_ = progress_.iteration;
  if (const auto& found = keeper_.found()) {
    const auto& position = found->position;
    stepped_ = position.stepped;
    evaluation_done_ = position.evaluated;
    micro_batches_ = position.micro_batches;
    interval_ = position.interval;
    saved_at_ = position.saved_at;
    product_rate_ = position.product_rate;
  }
  comm::together(world_, "the reports", [&] { open_log(); });
  last_ = restored_.folder;
  tell_start();
  if (o_.new_dataset && !keeper_.found() && !restored_.went_back) progress_.data_start = progress_.consumed_samples;
  if (progress_.data_start > 0)
    setup_.data.train_order = data::starting_at(std::move(setup_.data.train_order), progress_.data_start);
  if (progress_.consumed_valid_samples < 0)  // a checkpoint of the first version
    progress_.consumed_valid_samples =
        o_.eval_interval < 1 ? 0 : progress_.iteration / o_.eval_interval * o_.evaluation_steps() * samples_per_step();
  for (const auto& line : folder_.notes()) note(line);
  if (o_.async_save && o_.save_interval.value_or(0) > 0 && !saves_while_training(setup_))
    note(text("training waits for each checkpoint in spite of training_config.async_save: ckpt_format ",
              *o_.ckpt_format, " is written from what ranks send to each other"));
  if (const auto& m = setup_.model; !m.trained.all())
    note(text(m.trained_parameters, " of ", m.parameters, " parameters are trained, the others are frozen"));
  for (const auto& line : keeper_.take_notes()) note(line);
  for (const auto& line : restored_.notes) note(line);
  if (setup_.model.reference) prepare_reference();
  if (keeper_.given_up() > progress_.iteration)
    note(text("iterations ", progress_.iteration + 1, " to ", keeper_.given_up(), " are lost and will be repeated"));
  read_rejected();
  report_how_to_resume();
  quarantine_.restore(progress_.quarantine, restored_.continues || folder_.is_restart());
  progress_.quarantine = quarantine_.found();
  work_.when_bad_samples([this](const data::Dataset& data, const std::vector<data::BadSample>& found) {
    quarantine_.add(data, found, progress_.iteration + 1);
    progress_.quarantine = quarantine_.found();
  });
  work_.when_reduced([this] {
    keeper_.prepare(progress_.iteration + 1, state_);
    faults_.reach(progress_.iteration + 1, resilience::Phase::reduce);
    return checks_.damaged();
  });
  if (o_.rerun_mode != RerunMode::disabled)
    faults_.draw({o_.error_injection_rate, o_.error_injection_type != InjectedError::transient_error,
                  static_cast<std::uint64_t>(o_.seed), world_.size()});
  if (!setup_.resilience.inject_fault.empty() || o_.error_injection_rate > 0) {
    work_.when_computed([this](double& loss, float* gradient) {
      faults_.change(progress_.iteration + 1, {.loss = &loss, .gradient = gradient});
    });
    state_.call_halfway([this] { faults_.reach(progress_.iteration + 1, resilience::Phase::update); });
  }
  faults_.flip_by([this] { return flip_a_bit(state_); });
  if (!keeper_.found()) checks_.seal();
  if (keeper_.found()) {
    recover();
    state_was_sound();
  } else if (keeper_.keeps()) {
    keeper_.begin(progress_.iteration, position(), state_, threads_);
    launcher_.holds(progress_.iteration);
  }
  for (const auto& line : keeper_.take_notes()) note(line);
  faults_.reach(0, resilience::Phase::start);
}

/// Reads the weights of the reference model, and the log-probabilities that were stored.
void Trainer::prepare_reference() {
  auto& reference = *setup_.model.reference;
  std::vector<std::string> notes;
  comm::together(world_, "the reference model", [&] { notes = reference.load(setup_); });
  for (const auto& line : notes) note(line);
  if (!setup_.model.caches_reference) return;
  const auto digest = sum_over_ranks(world_, reference.digest(), "the digest of the reference model");
  const auto& place = setup_.model.processes.place;
  comm::together(world_, "stored log-probabilities", [&] {
    work_.store_reference(std::make_unique<ReferenceCache>(
        std::filesystem::path(o_.output_dir) / "reference_logps" / text(digest), text("rank", world_.rank()),
        place.pipeline + 1 == setup_.model.plan.stages(), place.tensor == 0 && place.context == 0,
        *setup_.optimization.objective->reference()));
  });
}

/// From the memory that earlier processes left, or from a checkpoint.
Restored Trainer::restored_state() {
  if (const auto& found = keeper_.found()) {
    auto restored = restore_position(found->step, found->position, setup_);
    for (auto& line : restore_frozen(setup_, state_, threads_, found->position.saved_at, folder_))
      restored.notes.push_back(std::move(line));
    return restored;
  }
  if (const auto& kept = keeper_.withdrawn()) return restore_back(setup_, state_, kept->progress, kept->back_to);
  return restore(setup_, state_, threads_, &folder_);
}

/// Completes the step that all ranks agreed on, if earlier processes did not.
void Trainer::recover() {
  const auto& found = *keeper_.found();
  StepIntent intent;
  if (!found.rank_is_complete || !found.reported) intent = keeper_.found_intent(work_.auxiliary());
  if (!found.rank_is_complete && !found.rank_is_lost) {
    keeper_.adopt_intent(state_);
    if (intent.changes_weights()) {
      work_.complete_update(intent.rates, intent.outcome);
      keeper_.update_copies(threads_, intent);
    }
  }
  keeper_.give_to_lost(state_, threads_);
  state_.weights_changed();
  if (found.reported) return commit();
  while (progress_.iteration + 1 < found.step && skip_iteration()) {
  }
  complete_step(intent, intent.seconds);
}

RunPosition Trainer::position() const {
  RunPosition all;
  if (!keeper_.keeps()) return all;
  all.progress = with_rates(progress_, setup_);
  all.stepped = stepped_;
  all.evaluated = evaluation_done_;
  all.micro_batches = micro_batches_;
  all.saved_at = saved_at_;
  all.product_rate = product_rate_;
  all.interval = interval_;
  return all;
}

/// From now on a later process continues here.
void Trainer::commit() {
  if (!keeper_.keeps()) return;
  keeper_.commit(progress_.iteration, position());
  launcher_.holds(progress_.iteration);
}

/// Sets the time-out of the operations that follow, in which this rank waits for others; steps, evaluations and
/// checkpoints differ in it. As soon as the time of a step is known, the launcher limits the whole phase to the same
/// time, because a single rank waits in no operation.
void Trainer::wait_at_most(double seconds, const std::string& phase) const {
  world_.set_time_out(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
  step_time_out_.known() ? launcher_.expect(seconds, phase) : launcher_.expect_nothing();
}

/// Sets the time-out for a phase whose length does not follow from the time of a step.
void Trainer::wait_longest() const {
  world_.set_time_out(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * longest_wait())));
  launcher_.expect_nothing();
}

/// The length of a full validation is that of its data.
void Trainer::wait_for_evaluation() const {
  if (o_.full_validation) return wait_longest();
  wait_at_most(step_time_out_.evaluation_seconds(samples_per_step(), std::max<std::int64_t>(1, o_.evaluation_steps())),
               "an evaluation");
}

/// One step. Returns whether it was made: else it is to be computed again, or the run went back to a checkpoint.
bool Trainer::step() {
  using resilience::Phase;
  const TraceSpan span(TraceKind::phase, "step", progress_.iteration + 1);
  const Stopwatch watch;
  const double waited_before = world_.waited_seconds();
  const auto number = progress_.iteration + 1;
  const auto samples = setup_.data.batch_plan.at(progress_.consumed_samples).samples;
  wait_at_most(step_time_out_.seconds(samples), text("step ", number));
  keeper_.confirm();  // all ranks have agreed on this step
  faults_.reach(number, Phase::forward);
  const auto first = work_.backward(progress_.consumed_samples);
  bubble_.add(first);
  const auto& scaler = setup_.optimization.loss_scaler;
  const NumberChecks checks{.finite = o_.check_for_nan_in_grad && !scaler.dynamic(),
                            .spiky_loss = o_.check_for_spiky_loss,
                            .large_gradients = o_.check_for_large_grads};
  const bool wrong = first.damaged || judge(first, progress_.numbers, checks) != BadNumbers::none;
  if (wrong && !state_was_sound()) return false;
  // An update after the beginning of the save has verified what was saved, on all ranks.
  if (progress_.updates > open_save_updates_) approve_save();
  const auto judged = judge_step(work_, world_, first, progress_, checks, o_.rerun_mode);
  const bool accepted = accepts(judged);
  if (!accepted && progress_.numbers.bad_in_row + 1 >= setup_.resilience.roll_back_after) {
    roll_back_behind_bad_steps(judged);
    return false;
  }
  const auto& outcome = judged.outcome;
  if (number % o_.log_interval == 0) work_.share_router_gaps();  // logged steps have the gaps of all ranks

  faults_.reach(number, Phase::commit);
  StepIntent intent{outcome, work_.rates(progress_.updates + 1)};
  intent.skipped = scaler.skips() && !std::isfinite(outcome.grad_norm);
  intent.rejected = !accepted;
  intent.seconds = watch.seconds();
  keeper_.intend(number, intent, work_.auxiliary(), state_);
  if (intent.changes_weights()) {
    work_.update(intent.rates, outcome);
    keeper_.update_copies(threads_, intent);
  }
  faults_.reach(number, Phase::report);
  complete_step(intent, watch.seconds(), world_.waited_seconds() - waited_before);
  step_time_out_.add(watch.seconds(), samples);
  watch_stragglers(watch.seconds(), world_.waited_seconds() - waited_before);
  faults_.reach(number, Phase::gather);
  return true;
}

void Trainer::watch_stragglers(double seconds, double waited) {
  if (!stragglers_.add(seconds, waited)) return;
  const auto& own = stragglers_.window(rank_memory());
  const auto all = stragglers_.all_windows();
  world_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(all), "times and memory of ranks");
  for (const auto& line : stragglers_.close()) note(line);
  bool grew = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) grew = measured_memory_.add(rank, all[rank].memory) || grew;
  if (grew) write_measured_memory();
}

/// All of a step that follows its update: counters, rates, and what is reported.
/// `waited`: seconds of the step in which this rank waited for others; absent: unknown.
void Trainer::complete_step(const StepIntent& intent, double seconds, std::optional<double> waited) {
  const auto samples = setup_.data.batch_plan.at(progress_.consumed_samples).samples;
  auto record = begun_record(setup_, intent, seconds, samples);
  if (!intent.rejected) setup_.optimization.loss_scaler.update(intent.skipped);
  if (intent.rejected) {
    ++progress_.numbers.bad_in_row;
    progress_.skipped_samples += samples;
  }
  if (intent.changes_weights()) {
    add_good(progress_.numbers, intent.outcome, progress_.iteration);
    ++progress_.updates;
    setup_.optimization.schedule->advance(samples);
    if (o_.log_num_zeros_in_grad) record.num_zeros = static_cast<double>(work_.zeros_in_gradients());
  }
  if (o_.log_params_norm) record.params_norm = work_.weight_norm();
  if (o_.log_tps) record.tokens_per_sample = work_.mean_row_length();
  auxiliary_.add_to(record, work_.auxiliary());
  progress_.iteration += 1;
  progress_.consumed_samples += samples;
  if (intent.changes_weights()) progress_.sample_chain = intent.outcome.samples.after(progress_.sample_chain);
  complete_record(record, setup_, progress_);
  record.memory = memory();
  if (record.iteration % o_.log_interval == 0) add_speed(record, waited);
  evaluator_.expect(record.step_seconds * static_cast<double>(samples_per_step()) / static_cast<double>(samples));
  if (log_) log_->step(record);
  if (progress_file_) progress_file_->add(record.flops);
  interval_.add(record);
  if (record.iteration % o_.log_interval == 0) interval_.clear();
  stepped_ = true;
  evaluation_done_ = false;
  commit();
}

/// If iterations_to_skip or an earlier roll-back names the next iteration, consumes its samples without training. As in
/// Megatron-LM nothing is evaluated, logged or saved after it.
bool Trainer::skip_iteration() {
  const auto& list = o_.iterations_to_skip;
  if (std::find(list.begin(), list.end(), progress_.iteration) == list.end() &&
      !progress_.findings.skip.contains(progress_.iteration))
    return false;
  const auto samples = setup_.data.batch_plan.at(progress_.consumed_samples).samples;
  progress_.iteration += 1;
  progress_.consumed_samples += samples;
  progress_.skipped_samples += samples;
  if (log_)
    log_->event("skipped", progress_.iteration,
                {{"first", progress_.iteration},
                 {"last", progress_.iteration},
                 {"reason", "iterations_to_skip, or numbers that were rejected"}});
  return true;
}

/// Megatron-LM saves before the batch grows.
void Trainer::save_before_growth() {
  const auto micro_batches = setup_.data.batch_plan.at(progress_.consumed_samples).micro_batches;
  if (o_.save_interval && micro_batches_ > 0 && micro_batches != micro_batches_) save_now(false);
  micro_batches_ = micro_batches;
}

bool Trainer::evaluation_is_due() const {
  return !evaluation_done_ && o_.eval_interval > 0 && progress_.iteration % o_.eval_interval == 0;
}

void Trainer::evaluate_if_due() {
  if (!evaluation_is_due()) return;
  // As in Megatron-LM, an evaluation continues with the validation samples that follow those of the previous one.
  wait_for_evaluation();
  faults_.reach(progress_.iteration, resilience::Phase::evaluate);
  evaluator_.validate(reporting::EvaluationRecord::Set::validation, progress_, log_.get());
  if (!o_.full_validation) progress_.consumed_valid_samples += o_.evaluation_steps() * samples_per_step();
  evaluation_done_ = true;
  commit();
}

void Trainer::evaluate_at_end() {
  if (o_.eval_interval < 1) return;
  wait_for_evaluation();
  faults_.reach(progress_.iteration, resilience::Phase::evaluate);
  evaluator_.validate(reporting::EvaluationRecord::Set::final_validation, progress_, log_.get());
  wait_for_evaluation();
  evaluator_.test(progress_, log_.get());
}

/// State that only one host had is in danger until others have it again: it is saved before anything else. So are the
/// findings with which a run has gone back to a checkpoint.
void Trainer::save_after_loss() {
  if ((keeper_.found() && keeper_.found()->any_is_lost) || (restored_.went_back && !restored_.is_saved)) save_now();
}

/// The last step is saved after the evaluations at the end: a run that is killed in between repeats them.
bool Trainer::save_is_due() const {
  return o_.save_interval.value_or(0) > 0 && progress_.iteration % *o_.save_interval == 0 &&
         progress_.iteration < o_.training_iters;
}

bool Trainer::non_persistent_save_is_due() const {
  return o_.saves_non_persistent() && progress_.iteration % *o_.non_persistent_save_interval == 0 &&
         progress_.iteration < o_.training_iters;
}

/// What may be due after a step.
void Trainer::after_step() {
  poll_save();
  if (checks_.due(progress_.iteration) || evaluation_is_due()) state_was_sound();
  evaluate_if_due();
  if (save_is_due())
    save_now(false);
  else if (non_persistent_save_is_due())
    save_now(false, SaveKind::non_persistent);
}

/// The launcher starts the processes no more: what they left in memory becomes a checkpoint.
RunEnd Trainer::save_and_end() {
  if (keeper_.given_up() > progress_.iteration)
    return {worker::nothing_saved, text("the state after iteration ", keeper_.given_up(), " is lost; ",
                                        last_checkpoint(), " is the newest checkpoint")};
  if (!save_now())
    return {worker::nothing_saved, text("iteration ", progress_.iteration, " could not be saved: ", save_problem_)};
  tell_end("stopped", "the launcher does not start the run again; its state is saved");
  return {0, text("saved ", last_checkpoint(), " after iteration ", progress_.iteration, " of ", o_.training_iters,
                  "; ", how_to_resume(o_, true))};
}

/// Until all iterations are done, or the run is to stop for the reason `why`.
void Trainer::train_on(std::string& why) {
  while (progress_.iteration < o_.training_iters && why.empty() && !stop_.asked()) {
    report_position();
    save_before_growth();
    if (skip_iteration()) continue;
    profiler_.before_step(progress_.iteration + 1);
    const bool made = step();
    report_profile(false);
    if (!made) continue;
    after_step();
    stop_.agree();
    why = stop_.reason(progress_.iteration);
  }
  if (stop_.asked()) why = stop_.reason(progress_.iteration);
}

RunEnd Trainer::run_to_end() {
  kernels::forget_workspace();  // of measurements at the start
  if (launcher_.hands_over() && stepped_) after_step();
  if (launcher_.wants_checkpoint() || launcher_.hands_over()) return save_and_end();
  if (launcher_.only_finishes()) {
    tell_end("stopped", "the launcher asked for the last step to be completed");
    return {0, text("the state after iteration ", progress_.iteration, " is complete")};
  }
  const bool done_before = progress_.iteration >= o_.training_iters && !stepped_;
  stop_.agree();
  std::string why;
  if (stepped_) after_step();
  save_after_loss();
  if (stepped_) why = stop_.reason(progress_.iteration);
  bool done = false, saved = false;
  for (bool again = true; again;) {
    train_on(why);
    done = progress_.iteration >= o_.training_iters;
    again = done && !state_was_sound();  // it was repaired, or the run went back
    if (again) continue;
    launcher_.expect_nothing();
    report_profile(true);
    if (const auto line = bubble_.line(setup_); !line.empty()) note(line);
    if (stepped_) report_memory();
    if (done && !done_before) evaluate_at_end();
    saved = save_now();
    again = done && progress_.iteration < o_.training_iters;
  }
  launcher_.expect_nothing();
  const auto folder = last_checkpoint();
  if (!saved)
    return {worker::nothing_saved, text("iteration ", progress_.iteration, " could not be saved: ", save_problem_, "; ",
                                        last_.empty() ? "there is no checkpoint" : "the last is " + folder)};
  if (done) {
    tell_end("finished", "");
    return {0, text("done: ", progress_.iteration, " iterations, ", folder)};
  }
  tell_end("stopped", why);
  return {0, text(why, " after iteration ", progress_.iteration, " of ", o_.training_iters, ", saved ", folder, "; ",
                  how_to_resume(o_, true))};
}

RunEnd Trainer::run() {
  try {
    auto end = run_to_end();
    if (end.exit_code != 0 && !launcher_.present()) tell_end("failed", end.last_line);
    return end;
  } catch (const std::exception& error) {
    if (!launcher_.present()) tell_end("failed", error.what());  // it tells which rank failed, and why
    throw;
  }
}

RunEnd train(TrainingSetup setup, const StopSignal& stop) { return Trainer(std::move(setup), stop).run(); }

}  // namespace tessera::training
