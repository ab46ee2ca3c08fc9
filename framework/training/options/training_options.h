#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/log/log.h"
#include "framework/options/schema.h"
#include "framework/reporting/log_style.h"

// words() is found in the namespace of its enumeration by argument-dependent lookup.
namespace tessera::log {

inline options::Words<LogLevel> words(LogLevel) { return {log_levels.begin(), log_levels.end()}; }

}  // namespace tessera::log

namespace tessera::training {

/// What a run does if its folder already has checkpoints.
enum class Resume {
  when_possible,  ///< resume from the newest good checkpoint; start a new run if there is none
  always,         ///< resume; it is an error if there is no checkpoint
  never           ///< start a new run; a restart within one job resumes nevertheless
};
inline options::Words<Resume> words(Resume) {
  return {{"auto", Resume::when_possible}, {"true", Resume::always}, {"false", Resume::never}};
}

/// When steps are computed again.
enum class RerunMode {
  disabled,          ///< never
  validate_results,  ///< if their results look wrong
  report_stats       ///< always, to find hardware that computes wrong results
};
inline options::Words<RerunMode> words(RerunMode) {
  return {{"disabled", RerunMode::disabled},
          {"validate_results", RerunMode::validate_results},
          {"report_stats", RerunMode::report_stats}};
}

/// The options of training_config that say which parameters are trained.
inline constexpr std::array<const char*, 6> options_of_freezing = {
    "frozen_parameters",        "trainable_parameters", "freeze_trainable_layers",
    "freeze_trainable_modules", "freeze_extra_modules", "freeze_all_layers"};

/// What error_injection_rate injects into some steps.
enum class InjectedError {
  transient_error,   ///< wrong numbers that are correct when the step is computed again
  persistent_error,  ///< wrong numbers that are also wrong when the step is computed again
  correct_result     ///< the same numbers as persistent_error; only other hardware could tell them apart
};
inline options::Words<InjectedError> words(InjectedError) {
  return {{"transient_error", InjectedError::transient_error},
          {"persistent_error", InjectedError::persistent_error},
          {"correct_result", InjectedError::correct_result}};
}

/// Where checkpoints between those of save_interval are saved.
enum class NonPersistent {
  global,  ///< in one folder that all hosts share
  local    ///< in a folder on each host
};
inline options::Words<NonPersistent> words(NonPersistent) {
  return {{"global", NonPersistent::global}, {"local", NonPersistent::local}};
}

/// What happens if the names of tensors in a checkpoint and in the run differ: words of Megatron-LM's StrictHandling.
/// There, "unexpected" is what the run has and the checkpoint has not, and "missing" the reverse.
enum class Strictness {
  assume_ok_unexpected,
  log_unexpected,
  log_all,
  raise_unexpected,
  raise_all,
  return_unexpected,
  return_all,
  ignore_all
};
inline options::Words<Strictness> words(Strictness) {
  return {{"assume_ok_unexpected", Strictness::assume_ok_unexpected},
          {"log_unexpected", Strictness::log_unexpected},
          {"log_all", Strictness::log_all},
          {"raise_unexpected", Strictness::raise_unexpected},
          {"raise_all", Strictness::raise_all},
          {"return_unexpected", Strictness::return_unexpected},
          {"return_all", Strictness::return_all},
          {"ignore_all", Strictness::ignore_all}};
}

/// Options of training_config: length, seed, reports, checkpoints. describe() documents each option.
struct TrainingOptions {
  std::optional<std::string> stage;  ///< the words that describe() lists
  std::int64_t seed = 1234;
  std::int64_t training_iters = 0;  ///< 0: determined by epochs or dataset_config.train_samples
  std::optional<std::int64_t> epochs;
  std::string output_dir = "output";

  std::int64_t log_interval = 100;
  reporting::LogStyle log_style = reporting::LogStyle::megatron;
  log::LogLevel log_level = log::LogLevel::info;
  bool tensorboard = true;
  std::string wandb_project, wandb_exp_name, wandb_save_dir;  ///< empty: see describe()
  std::string prometheus_file;
  bool log_progress = false;

  bool check_for_nan_in_grad = true;
  bool check_for_spiky_loss = false;
  bool check_for_large_grads = false;
  RerunMode rerun_mode = RerunMode::validate_results;
  std::optional<std::string> result_rejected_tracker_filename;
  std::int64_t error_injection_rate = 0;
  InjectedError error_injection_type = InjectedError::transient_error;
  std::vector<std::string> frozen_parameters, trainable_parameters;  ///< patterns of names, see TrainedNames
  bool freeze_all_layers = false;
  std::optional<std::int64_t> freeze_trainable_layers;  ///< > 0: the last layers, < 0: the first ones
  std::vector<std::string> freeze_trainable_modules = {"all"}, freeze_extra_modules;
  /// Whether some parameters may be frozen.
  bool may_freeze() const {
    return !frozen_parameters.empty() || !trainable_parameters.empty() || freeze_all_layers || freeze_trainable_layers;
  }
  std::optional<bool> save_frozen_parameters;
  std::vector<std::int64_t> iterations_to_skip;
  bool log_num_zeros_in_grad = false;
  bool log_params_norm = false;
  bool log_tps = false;

  std::int64_t eval_interval = 1000;
  std::int64_t eval_iters = 100;  ///< 0 or negative: no evaluation; see evaluation_steps()
  bool full_validation = false;
  /// Global batches per evaluation; 0: no evaluation.
  std::int64_t evaluation_steps() const { return eval_iters > 0 ? eval_iters : 0; }

  std::optional<std::int64_t> save_interval;
  bool async_save = false;
  std::optional<std::int64_t> non_persistent_save_interval;
  std::optional<NonPersistent> non_persistent_ckpt_type;
  std::optional<std::string> non_persistent_global_ckpt_dir, non_persistent_local_ckpt_dir;
  bool saves_non_persistent() const { return non_persistent_save_interval.value_or(0) > 0; }
  bool no_save_optim = false;
  bool no_save_rng = false;
  std::optional<std::int64_t> exit_interval;
  std::optional<std::int64_t> exit_duration_in_mins;

  bool new_dataset = false;
  Resume resume_training = Resume::when_possible;
  std::optional<std::string> load_checkpoint;
  std::optional<std::int64_t> ckpt_step;
  std::optional<std::string> pretrained_checkpoint;
  std::optional<std::int64_t> override_ckpt_iteration;
  std::vector<std::string> ignore_config_keys;
  /// Whether the run may start from a checkpoint.
  bool may_load() const { return resume_training != Resume::never || load_checkpoint || pretrained_checkpoint; }
  bool exit_on_missing_checkpoint = false;
  bool use_checkpoint_args = false;
  bool use_mp_args_from_checkpoint_args = false;
  /// Absent: Tessera's format. Other formats are registered by the program.
  std::optional<std::string> ckpt_format;
  std::optional<std::string> ckpt_convert_format, ckpt_convert_save;
  std::string prefix = "network";
  bool crc_check = true;
  std::int64_t keep_checkpoint_max = 5;
  std::optional<std::int64_t> save_retain_interval;
  Strictness dist_ckpt_strictness = Strictness::raise_all;
  /// Whether a checkpoint may lack tensors of the run.
  bool may_lack_tensors() const {
    return dist_ckpt_strictness != Strictness::raise_all && dist_ckpt_strictness != Strictness::raise_unexpected &&
           dist_ckpt_strictness != Strictness::assume_ok_unexpected;
  }
  bool no_load_optim = false;
  bool no_load_rng = false;
  std::optional<bool> load_main_params_from_ckpt;
  std::vector<std::string> allow_changes;  ///< "group.option"

  std::optional<std::int64_t> num_threads;
  std::int64_t distributed_timeout_minutes = 10;
};
void describe(options::Schema<TrainingOptions>& s);

}  // namespace tessera::training
