#include "framework/resilience/resilience_options.h"

#include "framework/options/limits.h"
#include "framework/resilience/faults.h"

namespace tessera::resilience {
namespace {

std::optional<options::Finding> wrong_fault(const ResilienceOptions& o) {
  try {
    for (const auto& words : o.inject_fault) static_cast<void>(read_fault(words));
    return std::nullopt;
  } catch (const ConfigError& error) {
    options::Finding found;
    found.message = error.what();
    return found;
  }
}

}  // namespace

void describe(options::Schema<ResilienceOptions>& s) {
  using O = ResilienceOptions;
  s.when_changed(options::Change::silent);
  s.option("policy", &O::policy,
           "Recovery from failures under tsrun. memory: weights, gradients and optimizer state are in memory that "
           "outlives the processes, and restarted processes continue with the same step; replica: in addition, weights "
           "and optimizer state that only one host has are copied to another host and updated there, so that no step "
           "is lost with a host; off: a restart continues from the newest checkpoint.");
  s.option("require_host", &O::require_host,
           "Refuse to start if the loss of a host would lose steps: the state of every rank must also be on another "
           "host.")
      .no_flag("only Tessera has it");
  s.option(
       "step_time_out", &O::step_time_out,
       "Communication timeout within a training step, in seconds, and in an evaluation for each of its `eval_iters` "
       "iterations; at most `training_config.distributed_timeout_minutes`, which applies to checkpoints, the start and "
       "full validations.")
      .above(0)
      .at_most(31536000)
      .unit("seconds")
      .otherwise("10 times the second slowest of the run's steps, but at least 30 s; learnt from the first 12 steps")
      .no_flag("only Tessera has it");
  s.option("bad_step", &O::bad_step,
           "Action if a check (training_config.check_for_nan_in_grad, check_for_spiky_loss, check_for_large_grads) "
           "rejects a step and, unless training_config.rerun_mode is disabled, computing it again gives the same "
           "result. stop: the run ends; unless rerun_mode is disabled, spikes and large gradients are only logged; "
           "skip: the samples are consumed and no weight changes.")
      .no_flag("only Tessera has it");
  s.option("roll_back_after", &O::roll_back_after,
           "Number of consecutive rejected steps after which the run goes back to its newest checkpoint before them "
           "and skips their iterations.")
      .at_least(1)
      .at_most(options::most_steps)
      .unit("steps")
      .matters_when([](const O& o) { return o.bad_step == BadStep::skip; }, "`bad_step` is stop")
      .no_flag("only Tessera has it");
  s.option("check_state_interval", &O::check_state_interval,
           "Interval of the comparison of state that must be bit-identical, in steps: weights and optimizer state of "
           "data-parallel ranks, copies of policy replica, and parameters that are not sharded over tensor-parallel "
           "ranks; 0: only before evaluations and checkpoints. If the state differs, it is repaired, or the run goes "
           "back to its newest checkpoint.")
      .alias("check_weight_hash_across_dp_replicas_interval")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps")
      .no_flag("--check-weight-hash-across-dp-replicas-interval is off by default, and compares less");
  s.option(
       "check_updates", &O::check_updates,
       "Keep a checksum of each piece of weights and optimizer state, which the next update checks: finds a bit that "
       "changes in memory within a step, also without data-parallel ranks.")
      .no_flag("only Tessera has it");
  s.option("straggler_ratio", &O::straggler_ratio,
           "Straggler threshold: ratio of a rank's computing time per step to the median of the ranks of its pipeline "
           "stage. A rank above it in three consecutive windows of 5 s is logged; 0: off.")
      .at_least(0)
      .at_most(1000)
      .no_flag("--log-straggler is off by default, and reports the fastest and slowest ranks instead");
  s.option(
       "inject_fault", &O::inject_fault,
       "Faults to inject, RANK:STEP:PHASE:MODE each, or RANK:STEP:PHASE:MODE:START for another start of the job than "
       "the first.")
      .no_flag("only Tessera has it")
      .must("injected faults", [](const O& o) { return wrong_fault(o); });
}

}  // namespace tessera::resilience
