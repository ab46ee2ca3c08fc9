#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/log/log.h"
#include "framework/options/schema.h"

// The words are found in the namespace of their enumeration.
namespace tessera::log {

inline options::Words<LogLevel> words(LogLevel) { return {log_levels.begin(), log_levels.end()}; }

}  // namespace tessera::log

namespace tessera::training {

/// What a run does when its folder already holds checkpoints.
enum class Resume {
  when_possible,  ///< resume from the newest good checkpoint; start a new run when there is none
  always,         ///< resume; no checkpoint is an error
  never           ///< start a new run; restarts within one job resume all the same
};
inline options::Words<Resume> words(Resume) {
  return {{"auto", Resume::when_possible}, {"true", Resume::always}, {"false", Resume::never}};
}

/// Whether steps are computed again.
enum class RerunMode {
  disabled,          ///< never
  validate_results,  ///< if their numbers look wrong
  report_stats       ///< always, to find hardware that computes wrong
};
inline options::Words<RerunMode> words(RerunMode) {
  return {{"disabled", RerunMode::disabled},
          {"validate_results", RerunMode::validate_results},
          {"report_stats", RerunMode::report_stats}};
}

/// What is injected into some steps.
enum class InjectedError {
  transient_error,   ///< wrong numbers, which are right when the step is computed again
  persistent_error,  ///< wrong numbers, also then
  correct_result     ///< the same: only other hardware would tell them apart
};
inline options::Words<InjectedError> words(InjectedError) {
  return {{"transient_error", InjectedError::transient_error},
          {"persistent_error", InjectedError::persistent_error},
          {"correct_result", InjectedError::correct_result}};
}

/// How a plain line of progress looks.
enum class LogStyle { megatron, core_ms };
inline options::Words<LogStyle> words(LogStyle) {
  return {{"megatron", LogStyle::megatron}, {"core_ms", LogStyle::core_ms}};
}

/// training_config: how long, from which seed, what is written when, and where.
struct TrainingOptions {
  std::int64_t seed = 1234;
  std::int64_t training_iters = 0;  ///< 0: said by epochs or dataset_config.train_samples
  std::optional<std::int64_t> epochs;
  std::string output_dir = "output";

  std::int64_t log_interval = 100;
  LogStyle log_style = LogStyle::megatron;
  log::LogLevel log_level = log::LogLevel::info;
  bool tensorboard = true;

  bool calculate_per_token_loss = false;
  bool check_for_nan_in_grad = true;
  bool check_for_spiky_loss = false;
  bool check_for_large_grads = false;
  RerunMode rerun_mode = RerunMode::validate_results;
  std::optional<std::string> result_rejected_tracker_filename;
  std::int64_t error_injection_rate = 0;
  InjectedError error_injection_type = InjectedError::transient_error;
  std::vector<std::int64_t> iterations_to_skip;
  bool log_num_zeros_in_grad = false;
  bool log_params_norm = false;

  std::int64_t eval_interval = 1000;
  std::int64_t eval_iters = 100;
  bool full_validation = false;

  std::optional<std::int64_t> save_interval;
  std::optional<std::int64_t> exit_interval;
  std::optional<std::int64_t> exit_duration_in_mins;

  bool new_dataset = false;
  Resume resume_training = Resume::when_possible;
  std::optional<std::string> load_checkpoint;
  /// Whether the run may begin from a checkpoint.
  bool may_load() const { return resume_training != Resume::never || load_checkpoint; }
  bool exit_on_missing_checkpoint = false;
  /// Null: our own. Which others there are is known to the program that registers them.
  std::optional<std::string> ckpt_format;
  std::string prefix = "network";
  bool crc_check = true;
  std::int64_t keep_checkpoint_max = 5;
  bool no_load_optim = false;
  bool no_load_rng = false;

  std::optional<std::int64_t> num_threads;
  std::int64_t distributed_timeout_minutes = 10;
};
void describe(options::Schema<TrainingOptions>& s);

}  // namespace tessera::training
