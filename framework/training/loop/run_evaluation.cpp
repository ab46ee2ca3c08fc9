#include "framework/training/loop/run_evaluation.h"

#include "framework/base/clock.h"

namespace tessera::training {

RunEvaluation::RunEvaluation(Run& run, RunReports& reports) : run_(run), reports_(reports) {
  for (const auto& name : run.setup.optimization.objective->metrics()) metrics_.push_back({name});
}

bool RunEvaluation::is_due() const {
  return !run_.numbers.evaluated && run_.options.eval_interval > 0 &&
         run_.progress.iteration % run_.options.eval_interval == 0;
}

void RunEvaluation::completed(const reporting::StepRecord& record) {
  run_.numbers.evaluated = false;
  if (!measured_)
    batch_seconds_ = record.step_seconds * static_cast<double>(run_.samples_per_step()) /
                     static_cast<double>(record.global_batch_size) / 3;
}

void RunEvaluation::begin() {
  run_.wait_for_evaluation();
  run_.faults.reach(run_.progress.iteration, resilience::Phase::evaluate);
}

void RunEvaluation::end_step() {
  if (!is_due()) return;
  begin();
  validate(Record::Set::validation);
  if (!run_.options.full_validation)
    run_.progress.consumed_valid_samples += run_.options.evaluation_steps() * run_.samples_per_step();
  run_.numbers.evaluated = true;
  run_.commit();
}

void RunEvaluation::stop(bool completed) {
  if (!completed || run_.options.eval_interval < 1) return;
  begin();
  validate(Record::Set::final_validation);
  run_.wait_for_evaluation();
  evaluate(run_.setup.data.splits->test.get(), run_.setup.data.test_order.get(), {.set = Record::Set::test});
}

/// The validation split, or each validation set.
void RunEvaluation::validate(Record::Set set) {
  const auto& data = run_.setup.data;
  evaluate(data.splits->valid.get(), data.valid_order.get(), {.set = set});
  for (std::size_t i = 0; i < data.splits->valid_sets.size(); ++i) {
    const auto& one = data.splits->valid_sets[i];
    const auto suffix = "-" + one.name;
    evaluate(one.data.get(), data.valid_set_orders[i].get(),
             {.set = set, .suffix = suffix, .number = static_cast<std::int64_t>(i)});
  }
}

/// `record`: which split it is.
void RunEvaluation::evaluate(const data::Dataset* data, const data::Sampler* order, Record record) {
  if (!data || !order) return;
  const bool is_test = record.set == Record::Set::test;
  const bool whole = run_.options.full_validation && !is_test;
  const auto batch = run_.samples_per_step();
  const auto steps = whole ? (data->samples() + batch - 1) / batch : run_.options.evaluation_steps();
  if (steps < 1) return;
  auto* log = reports_.log();
  if (log) log->evaluation_begins(record.set, steps, static_cast<double>(steps) * batch_seconds_);
  const Stopwatch watch;
  const auto consumed = whole || is_test ? 0 : run_.progress.consumed_valid_samples;
  record.loss = run_.work.evaluate(*data, *order, consumed, steps, [&](std::int64_t done) {
    if (log) log->evaluation_progress(done);
  });
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    metrics_[i].value = run_.work.evaluated().metric(static_cast<std::int64_t>(i));
  record.metrics = metrics_;
  record.iteration = run_.progress.iteration;
  record.consumed_samples = run_.progress.consumed_samples;
  batch_seconds_ = watch.seconds() / static_cast<double>(steps);
  measured_ = true;
  if (log) log->evaluation(record);
}

}  // namespace tessera::training
