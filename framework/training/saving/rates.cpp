#include "framework/training/saving/rates.h"

namespace tessera::training {
namespace {

/// What plays no part in the numbers of the run is not worth a refusal: lengths of a decay that is none.
schedule::ScheduleState without_idle_fields(schedule::ScheduleState saved, const schedule::ScheduleState& ours) {
  if (saved.lr_decay_style == "constant" && ours.lr_decay_style == "constant") {
    saved.min_lr = ours.min_lr;
    saved.lr_decay_steps = ours.lr_decay_steps;
  }
  if (saved.wd_incr_style == "constant" && ours.wd_incr_style == "constant") saved.wd_incr_steps = ours.wd_incr_steps;
  return saved;
}

}  // namespace

checkpoint::Progress with_rates(checkpoint::Progress progress, const TrainingSetup& setup) {
  progress.schedule = setup.optimization.schedule->state();
  progress.global_batch_size = setup.data.batch_plan.full().samples;
  progress.order_stride = setup.data.train_order ? setup.data.train_order->stride() : 0;
  if (setup.optimization.loss_scaler.dynamic()) progress.loss_scale = setup.optimization.loss_scaler.state();
  return progress;
}

void begin_rates(TrainingSetup& setup) {
  auto& schedule = *setup.optimization.schedule;
  schedule.advance(-schedule.samples());
  setup.optimization.loss_scaler.begin();
}

void restore_rates(const checkpoint::Progress& progress, TrainingSetup& setup) {
  begin_rates(setup);
  auto& schedule = *setup.optimization.schedule;
  if (progress.schedule)
    schedule.restore(without_idle_fields(*progress.schedule, schedule.state()), setup.optimization.schedule_resume);
  else
    schedule.advance(progress.consumed_samples);
  if (progress.loss_scale) setup.optimization.loss_scaler.restore(*progress.loss_scale);
}

}  // namespace tessera::training
