#include "framework/training/loop/run.h"

#include <algorithm>
#include <chrono>

#include "framework/base/cpu_limit.h"
#include "framework/training/saving/rates.h"
#include "framework/training/saving/resume_from_memory.h"

namespace tessera::training {
namespace {

/// From the memory that earlier processes left, or from a checkpoint.
Restored restored_state(Run& run) {
  if (const auto& found = run.keeper.found()) {
    auto restored = restore_position(found->step, found->position, run.setup);
    for (auto& line : restore_frozen(run.setup, run.state, run.threads, found->position, run.folder))
      restored.notes.push_back(std::move(line));
    return restored;
  }
  if (const auto& kept = run.keeper.withdrawn())
    return restore_back(run.setup, run.state, run.threads, run.folder, kept->progress, kept->back_to);
  return restore(run.setup, run.state, run.threads, &run.folder);
}

PositionNumbers numbers_of(const Restored& restored) {
  PositionNumbers all;
  if (restored.is_saved) all.saved_at = restored.progress.iteration;
  return all;
}

PositionNumbers first_numbers(const Run& run) {
  if (const auto& found = run.keeper.found()) return found->position;
  return numbers_of(run.restored);
}

double longest_wait(const TrainingOptions& o) { return 60.0 * static_cast<double>(o.distributed_timeout_minutes); }

void set_time_out(const comm::Communicator& world, double seconds) {
  world.set_time_out(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
}

void wait_at_most(const Run& run, double seconds, const std::string& phase) {
  set_time_out(run.world, seconds);
  run.step_time_out.known() ? run.launcher.expect(seconds, phase) : run.launcher.expect_nothing();
}

}  // namespace

int thread_count(const TrainingSetup& setup) {
  const auto cores = setup.model.processes.cores;
  const auto all = cores > 0 ? cores : usable_core_count();
  return static_cast<int>(setup.options.num_threads.value_or(all));
}

Run::Run(TrainingSetup given, const StopSignal& signal)
    : setup(std::move(given)),
      options(setup.options),
      world(setup.model.processes.world),
      folder(world, options, setup.documents.formats),
      profiler(setup.profile, setup.model.processes, options.output_dir),
      threads(thread_count(setup)),
      keeper(setup),
      state(keeper.make_state()),
      restored(restored_state(*this)),
      progress(restored.progress),
      numbers(first_numbers(*this)),
      frozen(keeper.found() ? keeper.found()->position.frozen : std::nullopt),
      work(setup.model, setup.optimization, setup.data, state, threads, progress.seed),
      faults(setup.resilience.inject_fault, world.rank(), worker::full_world(world.size()), worker::start_of_job()),
      step_time_out(setup.resilience.step_time_out, longest_wait(options)),
      stop(options, signal, world),
      checks(setup, keeper, state, threads),
      saved_last(restored.folder) {}

RunPosition Run::position() const { return {numbers, with_rates(progress, setup), frozen}; }

void Run::go_back(Restored to) {
  restored = std::move(to);
  progress = restored.progress;
  folder.went_back(progress.iteration);
  saved_last = restored.folder;
  const auto product_rate = numbers.product_rate;
  numbers = numbers_of(restored);
  numbers.product_rate = product_rate;
}

void Run::begin_memory() {
  if (!keeper.keeps()) return;
  frozen = source_of_frozen(setup, state, threads, restored);
  keeper.begin(progress.iteration, position(), state, threads);
  launcher.holds(progress.iteration);
}

void Run::commit() {
  if (!keeper.keeps()) return;
  keeper.commit(progress.iteration, position());
  launcher.holds(progress.iteration);
}

void Run::wait_for_step() const {
  wait_at_most(*this, step_time_out.seconds(next_step().samples), text("step ", progress.iteration + 1));
}

void Run::wait_for_evaluation() const {
  if (options.full_validation) return wait_longest();  // its length is that of its data
  const auto steps = std::max<std::int64_t>(1, options.evaluation_steps());
  wait_at_most(*this, step_time_out.evaluation_seconds(samples_per_step(), steps), "an evaluation");
}

void Run::wait_longest() const {
  set_time_out(world, longest_wait(options));
  launcher.expect_nothing();
}

}  // namespace tessera::training
