#pragma once

#include <memory>

#include "framework/model/objective.h"
#include "framework/optim/clipping.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/parallel/data_parallel_options.h"
#include "framework/schedule/optimizer_schedule.h"
#include "framework/training/setup/loss_scale.h"

namespace tessera::training {

/// How gradients become updates. Owns all objects. The schedule and the loss scaler change from step to step and are
/// saved in every checkpoint.
struct OptimizationSetup {
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::ParameterGroupOptions groups;
  std::optional<optim::LoraPlus> lora_plus;
  double expert_bias_rate = 0;  ///< update rate of the router's expert biases, per step
  optim::ClippingOptions clipping;
  std::unique_ptr<schedule::OptimizerSchedule> schedule;
  schedule::ScheduleResumeOptions schedule_resume;
  LossScaler loss_scaler;
  std::unique_ptr<model::Objective> objective;
  parallel::DataParallelOptions data_parallel;
  parallel::ParameterGatherOptions parameter_gather;
};

}  // namespace tessera::training
