#include "framework/training/loop/training_steps.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "framework/base/files.h"
#include "framework/base/trace.h"
#include "framework/comm/together.h"
#include "framework/log/log.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::training {
namespace {

const log::Logger reference_logger("training");

}  // namespace

using resilience::Phase;

TrainingSteps::TrainingSteps(Run& run, RunReports& reports, StateGuard& guard)
    : run_(run),
      o_(run.options),
      reports_(reports),
      guard_(guard),
      quarantine_(run.setup.data, run.world, run.options.output_dir) {}

void TrainingSteps::prepare() {
  auto& progress = run_.progress;
  begin_data();
  if (run_.setup.model.reference) prepare_reference();
  if (run_.keeper.given_up() > progress.iteration)
    reports_.note(
        text("iterations ", progress.iteration + 1, " to ", run_.keeper.given_up(), " are lost and will be repeated"));
  read_rejected();
  quarantine_.restore(progress.quarantine, run_.restored.continues || run_.folder.is_restart());
  progress.quarantine = quarantine_.found();
  connect();
}

void TrainingSteps::begin_data() {
  auto& progress = run_.progress;
  auto& order = run_.setup.data.train_order;
  const bool goes_on = run_.keeper.found() || run_.restored.went_back || run_.restored.saved_in_job;
  if (o_.new_dataset && !goes_on) progress.data_start = progress.consumed_samples;
  if (progress.data_start > 0) order = data::starting_at(std::move(order), progress.data_start);
  if (progress.consumed_valid_samples < 0)  // a checkpoint of the first version
    progress.consumed_valid_samples =
        o_.eval_interval < 1 ? 0
                             : progress.iteration / o_.eval_interval * o_.evaluation_steps() * run_.samples_per_step();
}

/// Reads the weights of the reference model, and the log-probabilities that were stored.
void TrainingSteps::prepare_reference() {
  const auto& model = run_.setup.model;
  auto& reference = *model.reference;
  std::vector<std::string> notes;
  comm::together(run_.world, "the reference model", [&] { notes = reference.load(run_.setup); });
  reports_.note(notes);
  if (!model.caches_reference) return;
  const auto digest = sum_over_ranks(run_.world, reference.digest(run_.threads), "the digest of the reference model");
  const auto& place = model.processes.place;
  comm::together(run_.world, "stored log-probabilities", [&] {
    run_.work.store_reference(std::make_unique<ReferenceCache>(
        std::filesystem::path(o_.output_dir) / "reference_logps" / text(digest), text("rank", run_.world.rank()),
        place.pipeline + 1 == model.plan.stages(), place.tensor == 0 && place.context == 0,
        *run_.setup.optimization.objective->reference(),
        [](const std::string& words) { reference_logger.warning(words); }));
  });
}

/// Adds the iterations of result_rejected_tracker_filename that are still to come to those that are skipped.
void TrainingSteps::read_rejected() {
  if (!o_.result_rejected_tracker_filename) return;
  const std::filesystem::path file = *o_.result_rejected_tracker_filename;
  std::string lines;
  comm::together(run_.world, "training_config.result_rejected_tracker_filename", [&] {
    if (run_.world.rank() > 0) return;
    const std::ofstream out(file, std::ios::app);
    if (!out)
      throw ConfigError(text("training_config.result_rejected_tracker_filename: cannot append to ", file.string(), ": ",
                             std::strerror(errno), "; give a file that this process may write"));
    lines = read_file(file);
  });
  const auto found = iterations_to_skip(run_.world.broadcast(lines, 0, "the rejected results"));
  for (const auto& [begin, end] : found.ranges()) {
    if (end <= run_.progress.iteration) continue;
    run_.progress.findings.skip.add(begin, end);
    if (run_.progress.findings.skip.ranges().size() > checkpoint::IterationSet::most_ranges)
      throw ConfigError(text("training_config.result_rejected_tracker_filename: ", file.string(),
                             " rejects iterations ", "after ", run_.progress.iteration, " in more than ",
                             checkpoint::IterationSet::most_ranges,
                             " ranges, the most that a run can skip; delete lines of it"));
    reports_.note(text(file.string(), ": iterations ", begin + 1, " to ", end, " are skipped"));
  }
}

/// Who looks into a step while it is computed.
void TrainingSteps::connect() {
  run_.work.when_bad_samples([this](const data::Dataset& data, const std::vector<data::BadSample>& found) {
    quarantine_.add(data, found, run_.progress.iteration + 1);
    run_.progress.quarantine = quarantine_.found();
  });
  run_.work.when_reduced([this] {
    run_.keeper.prepare(run_.progress.iteration + 1, run_.state);
    run_.faults.reach(run_.progress.iteration + 1, Phase::reduce);
    return run_.checks.damaged();
  });
  if (o_.rerun_mode != RerunMode::disabled)
    run_.faults.draw({o_.error_injection_rate, o_.error_injection_type != InjectedError::transient_error,
                      static_cast<std::uint64_t>(o_.seed), run_.world.size()});
  if (!run_.setup.resilience.inject_fault.empty() || o_.error_injection_rate > 0) {
    run_.work.when_computed([this](double& loss, float* gradient) {
      run_.faults.change(run_.progress.iteration + 1, {.loss = &loss, .gradient = gradient});
    });
    run_.state.parts().front()->updates().call_halfway(
        [this] { run_.faults.reach(run_.progress.iteration + 1, Phase::update); });
  }
  run_.faults.flip_by([this] { return flip_a_bit(run_.state); });
}

void TrainingSteps::recover() {
  const auto& found = *run_.keeper.found();
  StepIntent intent;
  if (!found.rank_is_complete || !found.reported) intent = run_.keeper.found_intent(run_.work.auxiliary());
  if (!found.rank_is_complete && !found.rank_is_lost) {
    run_.keeper.adopt_intent(run_.state);
    if (intent.changes_weights()) {
      run_.work.complete_update(intent.rates, intent.outcome);
      run_.keeper.update_copies(run_.threads, intent);
    }
  }
  run_.keeper.give_to_lost(run_.state, run_.threads);
  run_.state.weights_changed();
  if (found.reported) return run_.commit();
  while (run_.progress.iteration + 1 < found.step && skip()) {
  }
  complete(intent, intent.seconds);
}

/// If iterations_to_skip or an earlier return to a checkpoint names the next iteration, consumes its samples without
/// training. As in Megatron-LM nothing is evaluated, logged or saved after it.
bool TrainingSteps::skip() {
  auto& progress = run_.progress;
  const auto& list = o_.iterations_to_skip;
  if (std::find(list.begin(), list.end(), progress.iteration) == list.end() &&
      !progress.findings.skip.contains(progress.iteration))
    return false;
  const auto samples = run_.next_step().samples;
  progress.iteration += 1;
  progress.consumed_samples += samples;
  progress.skipped_samples += samples;
  reports_.event("skipped", progress.iteration,
                 {{"first", progress.iteration},
                  {"last", progress.iteration},
                  {"reason", "iterations_to_skip, or numbers that were rejected"}});
  return true;
}

/// The launcher names this rank's position if it fails.
void TrainingSteps::begin_iteration() {
  if (!run_.launcher.present()) return;
  const auto& processes = run_.setup.model.processes;
  const auto& place = processes.place;
  run_.launcher.report(text("tp ", place.tensor, processes.context.size() > 1 ? text(" cp ", place.context) : "",
                            " dp ", place.data, " pp ", place.pipeline, ", iteration ", run_.progress.iteration + 1));
}

NumberChecks TrainingSteps::number_checks() const {
  return {.finite = o_.check_for_nan_in_grad && !run_.setup.optimization.loss_scaler.dynamic(),
          .spiky_loss = o_.check_for_spiky_loss,
          .large_gradients = o_.check_for_large_grads};
}

bool TrainingSteps::make() {
  const TraceSpan span(TraceKind::phase, "step", run_.progress.iteration + 1);
  const Stopwatch watch;
  const double waited_before = run_.world.waited_seconds();
  const auto waited = [&] { return run_.world.waited_seconds() - waited_before; };
  const auto& progress = run_.progress;
  const auto number = progress.iteration + 1;
  const auto samples = run_.next_step().samples;
  run_.keeper.confirm();  // all ranks have agreed on this step
  run_.faults.reach(number, Phase::forward);
  const auto first = run_.work.backward(progress.consumed_samples);
  reports_.add_times(first);
  const auto checks = number_checks();
  const bool wrong = first.damaged || judge(first, progress.numbers, checks) != BadNumbers::none;
  if (wrong && !guard_.state_was_sound()) return false;
  run_.participants.call(&Participant::computed);
  const auto judged = judge_step(run_.work, run_.world, first, progress, checks, o_.rerun_mode);
  const bool accepted = accepts(judged);
  if (!accepted && progress.numbers.bad_in_row + 1 >= run_.setup.resilience.roll_back_after) {
    go_back_behind_bad_steps(judged);
    return false;
  }
  const auto& outcome = judged.outcome;
  if (number % o_.log_interval == 0) run_.work.share_router_gaps();  // logged steps have the gaps of all ranks

  run_.faults.reach(number, Phase::commit);
  StepIntent intent{outcome, run_.work.rates(progress.updates + 1)};
  intent.skipped = run_.setup.optimization.loss_scaler.skips() && !std::isfinite(outcome.grad_norm);
  intent.rejected = !accepted;
  intent.seconds = watch.seconds();
  run_.keeper.intend(number, intent, run_.work.auxiliary(), run_.state);
  if (intent.changes_weights()) {
    run_.work.update(intent.rates, outcome);
    run_.keeper.update_copies(run_.threads, intent);
  }
  run_.faults.reach(number, Phase::report);
  complete(intent, watch.seconds(), waited());
  run_.step_time_out.add(watch.seconds(), samples);
  reports_.watch_stragglers(watch.seconds(), waited());
  run_.faults.reach(number, Phase::gather);
  return true;
}

/// All of a step that follows its update. `waited`: as of RunReports::measure.
void TrainingSteps::complete(const StepIntent& intent, double seconds, std::optional<double> waited) {
  const auto samples = run_.next_step().samples;
  auto record = begun_record(run_.setup, intent, seconds, samples);
  advance(intent, samples);
  complete_record(record, run_.setup, run_.progress);
  reports_.measure(record, intent, waited);
  run_.numbers.stepped = true;
  run_.participants.call(&Participant::completed, record);
  run_.commit();
}

/// Counters, schedule and loss scale to what they are after the step.
void TrainingSteps::advance(const StepIntent& intent, std::int64_t samples) {
  auto& progress = run_.progress;
  if (intent.rejected) {
    ++progress.numbers.bad_in_row;
    progress.skipped_samples += samples;
  } else {
    run_.setup.optimization.loss_scaler.update(intent.skipped);
  }
  if (intent.changes_weights()) {
    add_good(progress.numbers, intent.outcome, progress.iteration);
    ++progress.updates;
    run_.setup.optimization.schedule->advance(samples);
    progress.sample_chain = intent.outcome.samples.after(progress.sample_chain);
  }
  progress.iteration += 1;
  progress.consumed_samples += samples;
}

std::string TrainingSteps::reason_to_stop() {
  run_.stop.agree();
  // A run that has just gone back makes steps before an interval ends it.
  return run_.numbers.stepped || run_.stop.asked() ? run_.stop.reason(run_.progress.iteration) : "";
}

/// Ends the run with an error that names what is wrong. Collective.
void TrainingSteps::fail(const JudgedStep& judged, const std::string& why) {
  run_.participants.call(&Participant::finish_pending);
  const auto& progress = run_.progress;
  const auto found =
      judged.bad == BadNumbers::not_finite ? ": " + run_.work.first_not_finite(progress.consumed_samples) : "";
  throw Error(text("training: iteration ", progress.iteration + 1, ": ",
                   words_of(judged.bad, judged.outcome, progress.numbers), found, ". ", why,
                   "No weight was changed; the last checkpoint is ", run_.last_checkpoint(),
                   ". Try a lower learning_rate or a longer warm-up"));
}

/// Whether a step may change weights; its numbers may be rejected, and stay so when it is computed again.
bool TrainingSteps::accepts(const JudgedStep& judged) {
  reports_.note(judged.notes);
  if (o_.result_rejected_tracker_filename && run_.world.rank() == 0)
    for (const auto& result : judged.rejected) add_rejected(*o_.result_rejected_tracker_filename, result);
  if (judged.bad == BadNumbers::none) return true;
  const auto number = run_.progress.iteration + 1;
  const auto words = text("iteration ", number, ": ", words_of(judged.bad, judged.outcome, run_.progress.numbers));
  const bool skips = run_.setup.resilience.bad_step == resilience::BadStep::skip;
  if (!skips && (judged.bad == BadNumbers::not_finite || o_.rerun_mode == RerunMode::disabled)) fail(judged);
  if (skips)
    reports_.tell(words + ". No weight is changed", "skipped",
                  {{"first", number}, {"last", number}, {"reason", words}});
  else
    reports_.note(words + ". Training continues");
  return !skips;
}

/// Numbers were wrong in too many steps in a row: they are skipped from the newest checkpoint before them on.
void TrainingSteps::go_back_behind_bad_steps(const JudgedStep& judged) {
  run_.participants.call(&Participant::finish_pending);  // it may be the checkpoint to go back to
  auto& progress = run_.progress;
  const auto first = progress.numbers.last_good + 1, last = progress.iteration;
  auto& findings = progress.findings;
  const auto row = text("The numbers of ", run_.setup.resilience.roll_back_after, " steps in a row were rejected");
  if (findings.roll_back_end >= first - 1 && findings.roll_back_end >= 0)
    fail(judged, text(row, ", also after iterations before them were skipped. "));
  if (findings.skip.ranges().size() >= checkpoint::IterationSet::most_ranges)
    fail(judged, text(row, ", and ", checkpoint::IterationSet::most_ranges, " times before. "));
  if (!can_go_back(run_.setup, progress.run, first)) fail(judged, row + ", and there is no checkpoint before them. ");
  findings.skip.add(first, last + 1);
  findings.roll_back_end = last;
  reports_.note(text(row, ": iterations ", first + 1, " to ", last + 1,
                     " are skipped, from the newest checkpoint before them on"));
  guard_.go_back(first, row);
}

}  // namespace tessera::training
