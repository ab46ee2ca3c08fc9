#include "framework/training/reports/step_report.h"

namespace tessera::training {

void PipelineBubble::add(const StepOutcome& outcome) {
  if (warm_) stage_seconds_ += outcome.stage_seconds, wait_seconds_ += outcome.stage_wait_seconds;
  warm_ = true;
}

std::string PipelineBubble::line(const TrainingSetup& setup) const {
  const auto& plan = setup.model.plan;
  if (plan.stages() == 1 || stage_seconds_ <= 0) return "";
  const parallel::PipelineShape shape{plan.stages(), plan.chunks(), setup.data.batch_plan.full().micro_batches, 0};
  return parallel::bubble_line(wait_seconds_ / stage_seconds_, shape);
}

reporting::StepRecord begun_record(const TrainingSetup& setup, const StepIntent& intent, double seconds,
                                   std::int64_t samples) {
  const auto& schedule = *setup.optimization.schedule;
  reporting::StepRecord record;
  record.skipped = !intent.changes_weights();
  record.learning_rate = schedule.learning_rate();
  record.weight_decay = schedule.weight_decay();
  record.global_batch_size = samples;
  record.loss = intent.outcome.loss;
  record.grad_norm = intent.outcome.grad_norm;
  record.data_wait_seconds = intent.outcome.data_wait_seconds;
  record.step_seconds = seconds;
  record.flops = intent.outcome.flops;
  const auto& data = *setup.data.splits->train;
  record.tokens_per_second = static_cast<double>(samples * data.rows_per_sample() * data.seq_length()) / seconds;
  return record;
}

void complete_record(reporting::StepRecord& record, const TrainingSetup& setup, const checkpoint::Progress& progress) {
  const auto& schedule = *setup.optimization.schedule;
  record.iteration = progress.iteration;
  record.consumed_samples = progress.consumed_samples;
  record.skipped_samples = progress.skipped_samples;
  record.sample_chain = progress.sample_chain;
  record.loss_scale = static_cast<double>(setup.optimization.loss_scaler.scale());
  record.next_learning_rate = schedule.learning_rate();
  if (const auto& own = setup.optimization.groups; own.decoupled_lr)
    record.decoupled_learning_rate =
        schedule.learning_rate(*own.decoupled_lr, own.decoupled_min_lr.value_or(schedule.rate_shape().lowest));
  if (const auto epoch = setup.data.epoch_samples; epoch > 0) {
    record.epoch = (progress.consumed_samples - record.global_batch_size) / epoch;
    record.step_in_epoch =
        (progress.consumed_samples - record.global_batch_size) % epoch / setup.data.batch_plan.full().samples + 1;
  }
}

}  // namespace tessera::training
