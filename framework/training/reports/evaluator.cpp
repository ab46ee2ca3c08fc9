#include "framework/training/reports/evaluator.h"

#include "framework/base/clock.h"

namespace tessera::training {

/// Global batches of one evaluation on `data`.
std::int64_t Evaluator::steps_of(const data::Dataset& data, reporting::EvaluationRecord::Set set) const {
  const auto& o = setup_.options;
  if (!o.full_validation || set == reporting::EvaluationRecord::Set::test) return o.evaluation_steps();
  return (data.samples() + samples_per_step() - 1) / samples_per_step();
}

void Evaluator::evaluate(const data::Dataset* data, const data::Sampler* order, reporting::EvaluationRecord record,
                         std::int64_t consumed, reporting::RunLog* log) {
  if (!data || !order) return;
  const auto set = record.set;
  const auto steps = steps_of(*data, set);
  if (steps < 1) return;
  if (setup_.options.full_validation && set != reporting::EvaluationRecord::Set::test) consumed = 0;
  if (log) log->evaluation_begins(set, steps, static_cast<double>(steps) * iteration_seconds_);
  const Stopwatch watch;
  record.loss = work_.evaluate(*data, *order, consumed, steps, [&](std::int64_t done) {
    if (log) log->evaluation_progress(done);
  });
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    metrics_[i].value = work_.evaluated().metric(static_cast<std::int64_t>(i));
  record.metrics = metrics_;
  iteration_seconds_ = watch.seconds() / static_cast<double>(steps);
  measured_ = true;
  if (log) log->evaluation(record);
}

void Evaluator::validate(reporting::EvaluationRecord::Set set, const checkpoint::Progress& progress,
                         reporting::RunLog* log) {
  const auto consumed = progress.consumed_valid_samples;
  const auto& data = setup_.data;
  reporting::EvaluationRecord record;
  record.set = set;
  record.iteration = progress.iteration;
  record.consumed_samples = progress.consumed_samples;
  evaluate(data.splits->valid.get(), data.valid_order.get(), record, consumed, log);
  for (std::size_t i = 0; i < data.splits->valid_sets.size(); ++i) {
    const auto& one = data.splits->valid_sets[i];
    const auto suffix = "-" + one.name;
    record.suffix = suffix;
    record.number = static_cast<std::int64_t>(i);
    evaluate(one.data.get(), data.valid_set_orders[i].get(), record, consumed, log);
  }
}

void Evaluator::test(const checkpoint::Progress& progress, reporting::RunLog* log) {
  reporting::EvaluationRecord record;
  record.set = reporting::EvaluationRecord::Set::test;
  record.iteration = progress.iteration;
  record.consumed_samples = progress.consumed_samples;
  evaluate(setup_.data.splits->test.get(), setup_.data.test_order.get(), record, 0, log);
}

void Evaluator::expect(double step_seconds) {
  if (!measured_) iteration_seconds_ = step_seconds / 3;
}

}  // namespace tessera::training
