#include "framework/training/options/training_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/base/files.h"
#include "framework/options/limits.h"

namespace tessera::training {

namespace {

using O = TrainingOptions;

constexpr std::array<std::string_view, 6> stages = {"pt", "sft", "dpo", "simpo", "orpo", "rm"};
constexpr auto loads = [](const O& o) { return o.may_load(); };
constexpr const char* no_file_name =
    "but it becomes part of the name of a folder: it must have no slash, no control character, and at most 128 bytes";
constexpr const char* freezing_rule =
    "a regular expression that must match the whole name, for example decoder\\.layers\\.[0-3]\\..*";
constexpr const char* no_load = "no checkpoint is read: `resume_training` is false and `load_checkpoint` is null";

constexpr auto is_known_stage = [](const O& o) {
  return !o.stage || std::ranges::find(stages, *o.stage) != stages.end();
};

void describe_stage(options::Schema<O>& s) {
  s.option("stage", &O::stage,
           "Stage of training: pt (pretraining) and sft train on the cross-entropy; dpo, simpo and orpo prefer one of "
           "two completions, as `preference_config` says; rm trains a reward model, which needs "
           "`model_config.score_head`. sft and the stages of pairs take `dataset_type: instruction`. null: pt.")
      .when_changed(options::Change::told)
      .must(
          "stage", is_known_stage,
          [](const O& o) {
            return text("stage is ", *o.stage, ", which ",
                        o.stage->rfind("ray_", 0) == 0 || *o.stage == "ppo" || *o.stage == "grpo"
                            ? "generates completions during training and is not supported"
                            : "is not supported");
          },
          "give one of pt, sft, dpo, simpo, orpo, rm");
}

void describe_run(options::Schema<O>& s) {
  s.option("seed", &O::seed, "Seed of all random numbers of the run.")
      .when_changed(options::Change::order)
      .at_least(0)
      .at_most(0xFFFFFFFF);
  s.option("training_iters", &O::training_iters,
           "Number of training iterations; 0: set by `epochs` or `dataset_config.train_samples`.")
      .when_changed(options::Change::order)
      .at_least(0)
      .at_most(options::most_steps)
      .alias("train_iters")
      .unit("steps");
  s.option("epochs", &O::epochs,
           "Number of passes over the training split; with `training_iters` too, the shorter of the two ends the run.")
      .when_changed(options::Change::order)
      .above(0)
      .at_most(1000000);
  s.option("output_dir", &O::output_dir, "Run folder: all files that the run writes are below it.").alias("save");
}

void describe_logging(options::Schema<O>& s) {
  s.option("log_interval", &O::log_interval, "Logging interval, in steps.")
      .above(0)
      .at_most(options::most_steps)
      .unit("steps");
  s.option("log_level", &O::log_level,
           "Minimum level of messages, on the terminal and in the log file: debug, info, warning or error; iteration "
           "lines are info. `--log-level` of the program takes precedence.")
      .no_flag("only Tessera has it");
  s.option("log_style", &O::log_style, "Format of plain log lines: megatron or core_ms.")
      .no_flag("only Tessera has it");
  s.option("tensorboard", &O::tensorboard, "Write TensorBoard event files to output_dir/tensorboard.")
      .no_flag("flags for the folder of event files are ignored");
  const auto for_wandb = [](const O& o) { return !o.wandb_project.empty(); };
  const char* no_wandb = "`wandb_project` is empty";
  s.option("wandb_project", &O::wandb_project,
           "Project of Weights & Biases: write the run as an offline run, which `wandb sync` uploads; nothing is sent. "
           "Empty: do not.");
  s.option("wandb_exp_name", &O::wandb_exp_name,
           "Name of the run in Weights & Biases; empty: the last part of `output_dir`.")
      .matters_when(for_wandb, no_wandb);
  s.option("wandb_save_dir", &O::wandb_save_dir,
           "Folder in which the folder wandb/ with the offline run is made; empty: `output_dir`.")
      .matters_when(for_wandb, no_wandb);
  s.option(
      "log_progress", &O::log_progress,
      "Append a line for each start and each saved checkpoint to progress.txt in output_dir, in Megatron-LM's form: "
      "throughput, floating-point operations and tokens so far.");
  s.option("prometheus_file", &O::prometheus_file,
           "File in Prometheus's text format with the newest metrics, replaced at every logged step: a name that ends "
           "in .prom in the folder of node_exporter's textfile collector. Empty: none.")
      .no_flag("only Tessera has it");
}

void describe_trained_layers(options::Schema<O>& s) {
  const auto in_layers = [](const O& o) { return o.freeze_trainable_layers.has_value(); };
  const char* no_layers = "`freeze_trainable_layers` is null";
  s.option(
       "freeze_trainable_layers", &O::freeze_trainable_layers,
       "Train so many layers of the decoder, all other parameters being frozen, by the rules of LLaMA-Factory: > 0: "
       "the last layers; < 0: the first ones; 0: only `freeze_extra_modules`. A new score head, adapters and "
       "`trainable_parameters` are trained too. null: not used.")
      .when_changed(options::Change::state)
      .at_least(-options::most_steps)
      .at_most(options::most_steps)
      .unit("layers");
  s.option("freeze_trainable_modules", &O::freeze_trainable_modules,
           "Modules that are trained in the layers of `freeze_trainable_layers`, by the names that they have in "
           "Transformers' layer, for example mlp or self_attn; all: each of them.")
      .when_changed(options::Change::state)
      .matters_when([](const O& o) { return o.freeze_trainable_layers.value_or(0) != 0; },
                    "`freeze_trainable_layers` names no layer");
  s.option(
       "freeze_extra_modules", &O::freeze_extra_modules,
       "Modules outside of the layers that are trained beside `freeze_trainable_layers`, for example embed_tokens or "
       "lm_head. As in LLaMA-Factory, each trains all parameters with names that contain it: norm includes the norms "
       "of all layers.")
      .when_changed(options::Change::state)
      .matters_when(in_layers, no_layers);
  s.option("freeze_all_layers", &O::freeze_all_layers,
           "Train no parameter but adapters, a new score head and what `trainable_parameters` and "
           "`freeze_trainable_layers` name.")
      .when_changed(options::Change::state)
      .matters_when([](const O& o) { return o.trainable_parameters.empty() && !o.freeze_trainable_layers; },
                    "other options name what is trained");
}

void describe_checks(options::Schema<O>& s) {
  s.option("check_for_nan_in_grad", &O::check_for_nan_in_grad,
           "Reject a step whose loss or gradient norm is not finite; if that ends the run, the error names the first "
           "such value; not applied with dynamic loss scaling, which expects overflows.")
      .alias("check_for_nan_in_loss_and_grad");
  s.option("check_for_spiky_loss", &O::check_for_spiky_loss,
           "Reject a step whose loss is at least 10 times the largest loss of the accepted steps before it, once there "
           "are 10 of these.");
  s.option("check_for_large_grads", &O::check_for_large_grads,
           "Reject a step whose gradient norm is at least 10 times the largest gradient norm of the accepted steps "
           "before it, once there are 10 of these.");
  s.option("rerun_mode", &O::rerun_mode,
           "Steps to compute again, to distinguish hardware faults from bad data. validate_results: steps that a check "
           "rejects; if the result differs and is accepted, the run reports rank and host and continues with it; "
           "disabled: none, and a rejected step is handled as `resilience_config.bad_step` says; report_stats: every "
           "step, at twice the time.");
  s.option("result_rejected_tracker_filename", &O::result_rejected_tracker_filename,
           "File to which a line is appended for each rejected result. When a run starts, it skips iterations that "
           "have two lines with status rerun_disabled or first_rerun_reproducible.");
  s.option("error_injection_rate", &O::error_injection_rate,
           "Rate of injected faults, one in so many steps, drawn from the seed: a rank's numbers become NaN; 0: none.")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps")
      .matters_when([](const O& o) { return o.rerun_mode != RerunMode::disabled; }, "`rerun_mode` is disabled");
  s.option("error_injection_type", &O::error_injection_type,
           "Type of injected faults: transient_error: the numbers are right when the step is computed again; "
           "persistent_error, correct_result: they are wrong again.")
      .matters_when([](const O& o) { return o.error_injection_rate > 0; }, "`error_injection_rate` is 0");
  s.option("iterations_to_skip", &O::iterations_to_skip,
           "Iterations to skip, counted from 0: their samples are consumed without training.")
      .when_changed(options::Change::told)
      .at_least(0)
      .at_most(options::most_steps)
      .alias("skip_train_iterations");
  s.option("frozen_parameters", &O::frozen_parameters,
           text("Parameters that are not trained: patterns of their names, each ", freezing_rule,
                ". A frozen parameter has no gradient, optimizer state or fp32 copy. Empty: all others are trained."))
      .when_changed(options::Change::state);
  s.option("trainable_parameters", &O::trainable_parameters,
           text("Parameters that are trained, all others being frozen: patterns of their names, each ", freezing_rule,
                ". Empty: all are trained. A parameter that `frozen_parameters` also names is frozen."))
      .when_changed(options::Change::state)
      .no_flag("only Tessera has it");
  describe_trained_layers(s);
  s.option(
       "save_frozen_parameters", &O::save_frozen_parameters,
       "Save frozen parameters in every checkpoint; false: checkpoints name `load_checkpoint`, which has them, and a "
       "digest, and can be loaded only while that folder has the same weights.")
      .when_changed(options::Change::state)
      .must(
          "frozen parameters",
          [](const O& o) { return o.save_frozen_parameters.value_or(true) || !o.may_freeze() || o.load_checkpoint; },
          [](const O&) {
            return std::string(
                "save_frozen_parameters is false, but load_checkpoint is null: no file has the frozen "
                "parameters");
          },
          "give load_checkpoint, or leave save_frozen_parameters out", {"load_checkpoint"})
      .no_flag("only Tessera has it");
  s.option("log_num_zeros_in_grad", &O::log_num_zeros_in_grad,
           "Log the number of gradient elements that are exactly zero.");
  s.option("log_params_norm", &O::log_params_norm, "Log the L2 norm of all trained weights after each step.");
  s.option(
      "log_tps", &O::log_tps,
      "Log the tokens per sample: the length of the rows with their padding, mean over the micro-batches of a step.");
}

void describe_evaluation(options::Schema<O>& s) {
  s.option("eval_interval", &O::eval_interval, "Evaluation interval, in steps; 0: no evaluation.")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps")
      .matters_when([](const O& o) { return o.eval_iters > 0 || o.full_validation; },
                    "`eval_iters` is not above 0, and `full_validation` is false");
  s.option("eval_iters", &O::eval_iters, "Number of global batches per evaluation; 0 or negative: no evaluation.")
      .at_least(-1000000000)
      .at_most(1000000000);

  s.option(
      "full_validation", &O::full_validation,
      "Evaluate on the whole validation split each time, instead of on `eval_iters` global batches; the last batch "
      "is filled with its first samples.");
}

void describe_saving(options::Schema<O>& s) {
  s.option("save_interval", &O::save_interval, "Checkpoint interval, in steps; null or 0: only at the end.")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps");
  s.option(
       "async_save", &O::async_save,
       "Save while training goes on: threads of low priority write the checkpoint, and an update copies what it is "
       "about to change and is not written yet. Needs memory for that, at most as much as the rank saves. The files "
       "are the same. With ckpt_format torch, at the end and before the run stops, saving is synchronous.")
      .matters_when([](const O& o) { return o.save_interval.value_or(0) > 0; }, "`save_interval` is not given");
  s.option("no_save_optim", &O::no_save_optim,
           "Save checkpoints without optimizer state, and in formats of other programs without fp32 weights beside "
           "those of 16 bits. A run continues from them only with no_load_optim.");
  s.option("no_save_rng", &O::no_save_rng,
           "Save checkpoints without the random seed. A run continues from them only with no_load_rng.");
  s.option("exit_interval", &O::exit_interval,
           "Save and exit at the first iteration divisible by this, in steps; 0: never.")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps");
  s.option("exit_duration_in_mins", &O::exit_duration_in_mins,
           "Save and exit after this time, in minutes; 0: no time limit.")
      .at_least(0)
      .at_most(options::most_minutes)
      .unit("minutes");
}

void describe_non_persistent(options::Schema<O>& s) {
  constexpr auto saves = [](const O& o) { return o.saves_non_persistent(); };
  constexpr const char* no_interval = "`non_persistent_save_interval` is not given";
  s.option(
       "non_persistent_save_interval", &O::non_persistent_save_interval,
       "Interval of non-persistent checkpoints, in steps; null or 0: none. They are saved between those of "
       "`save_interval`, in Tessera's format whatever `ckpt_format` is; only the newest is kept. A run resumes from "
       "the newer of both kinds.")
      .at_least(0)
      .at_most(options::most_steps)
      .unit("steps")
      .must(
          "non-persistent checkpoints",
          [](const O& o) { return !o.saves_non_persistent() || o.non_persistent_ckpt_type.has_value(); },
          [](const O&) {
            return std::string("non_persistent_save_interval is given, but non_persistent_ckpt_type is null");
          },
          "give non_persistent_ckpt_type: global or local, or leave non_persistent_save_interval out",
          {"non_persistent_ckpt_type"});
  s.option("non_persistent_ckpt_type", &O::non_persistent_ckpt_type,
           "Where non-persistent checkpoints are: global (one folder that all hosts share), local (a folder on each "
           "host, with what its ranks save); null: there are none.")
      .matters_when(saves, no_interval)
      .must(
          "C1",
          [](const O& o) {
            return o.non_persistent_ckpt_type != NonPersistent::local || o.non_persistent_local_ckpt_dir;
          },
          [](const O&) {
            return std::string("non_persistent_ckpt_type is local, but non_persistent_local_ckpt_dir is null");
          },
          "give non_persistent_local_ckpt_dir a folder on a disk of each host", {"non_persistent_local_ckpt_dir"});
  s.option("non_persistent_global_ckpt_dir", &O::non_persistent_global_ckpt_dir,
           "Folder of non-persistent checkpoints, for one run; null: non_persistent in output_dir.")
      .matters_when(
          [](const O& o) { return o.saves_non_persistent() && o.non_persistent_ckpt_type == NonPersistent::global; },
          "`non_persistent_ckpt_type` is not global, or `non_persistent_save_interval` is not given");
  s.option("non_persistent_local_ckpt_dir", &O::non_persistent_local_ckpt_dir,
           "Folder on each host of non-persistent checkpoints of type local, for one run.")
      .matters_when(
          [](const O& o) { return o.saves_non_persistent() && o.non_persistent_ckpt_type == NonPersistent::local; },
          "`non_persistent_ckpt_type` is not local, or `non_persistent_save_interval` is not given");
}

void describe_resuming(options::Schema<O>& s) {
  s.option(
      "resume_training", &O::resume_training,
      "auto: resume from the newest good checkpoint in output_dir if there is one; true: there must be one; false: "
      "start a new run, and move what an earlier run left in output_dir to output_dir.1 (or .2, ...). Restarts within "
      "one job of tsrun or Slurm always resume.");
  s.option("new_dataset", &O::new_dataset,
           "When resuming, read the training data from its beginning, as after a change of the data; learning rate and "
           "number of steps continue. Restarts within one job go on in the data.");
  s.option("load_checkpoint", &O::load_checkpoint,
           "Folder of the checkpoint to start from if output_dir has none to resume from: checkpoints of Tessera or "
           "Megatron-LM, or a Hugging Face Transformers model; null: only checkpoints in output_dir are used.")
      .alias("load");
  s.option("ckpt_step", &O::ckpt_step,
           "Iteration of the checkpoint to load instead of the newest, of those in `load_checkpoint`; if that is null "
           "or `output_dir`, the run goes back to that iteration, and later checkpoints are set aside. Restarts within "
           "one job take the newest.")
      .at_least(0)
      .at_most(options::most_steps)
      .matters_when(loads, no_load);
  s.option("pretrained_checkpoint", &O::pretrained_checkpoint,
           "Folder of the checkpoint with whose weights a new run begins if `load_checkpoint` is null or holds no "
           "checkpoint yet; null: none.");
  s.option(
       "override_ckpt_iteration", &O::override_ckpt_iteration,
       "Iteration at which a run begins that continues the checkpoint in `load_checkpoint`, instead of the "
       "checkpoint's own: training data is read from the sample of that iteration on. Weights, optimizer state and "
       "schedule are the checkpoint's. Afterwards the run resumes from its own checkpoints. null: the checkpoint's.")
      .at_least(0)
      .at_most(options::most_steps)
      .must(
          "iteration of a checkpoint that is loaded",
          [](const O& o) {
            return !o.override_ckpt_iteration ||
                   (o.load_checkpoint && *o.load_checkpoint != o.output_dir && o.resume_training != Resume::never);
          },
          [](const O& o) {
            const char* why = !o.load_checkpoint                   ? "load_checkpoint is null"
                              : *o.load_checkpoint == o.output_dir ? "load_checkpoint is output_dir"
                                                                   : "resume_training is false";
            return text("override_ckpt_iteration is ", *o.override_ckpt_iteration, ", but ", why);
          },
          "give load_checkpoint a folder other than output_dir, and leave resume_training out; or leave "
          "override_ckpt_iteration out",
          {"load_checkpoint"});
  s.option("ignore_config_keys", &O::ignore_config_keys,
           "Keys of the config.json of a Hugging Face Transformers model in `load_checkpoint` that are read as if they "
           "were not there.")
      .matters_when([](const O& o) { return o.load_checkpoint.has_value(); }, "`load_checkpoint` is null")
      .no_flag("only Tessera has it");
  s.option(
      "exit_on_missing_checkpoint", &O::exit_on_missing_checkpoint,
      "Fail if `load_checkpoint` holds no checkpoint, also if it is `output_dir`; false: start from scratch then.");
}

void describe_checkpoints(options::Schema<O>& s) {
  s.option("use_checkpoint_args", &O::use_checkpoint_args,
           "Take options of the model from the checkpoint in `load_checkpoint`, as Megatron-LM does: activation, norm, "
           "biases, position embedding, dropout, query groups and experts even where this recipe gives others; sizes "
           "where it gives none. The tokenizer is that of this recipe.")
      .must(
          "arguments of a checkpoint", [](const O& o) { return !o.use_checkpoint_args || o.load_checkpoint; },
          [](const O&) { return std::string("use_checkpoint_args is true, but load_checkpoint is null"); },
          "give load_checkpoint, or leave use_checkpoint_args out", {"load_checkpoint"});
  s.option("use_mp_args_from_checkpoint_args", &O::use_mp_args_from_checkpoint_args,
           "With `use_checkpoint_args`, also take the sizes of tensor, pipeline and expert parallelism and the number "
           "of virtual stages from the checkpoint, even where this recipe gives others.")
      .matters_when([](const O& o) { return o.use_checkpoint_args; }, "`use_checkpoint_args` is false");
  s.option(
      "ckpt_format", &O::ckpt_format,
      "Checkpoint format to write: safetensors (or null) is Tessera's, torch and torch_dist (distributed) are those "
      "of Megatron-LM's `--ckpt-format`. All can be loaded.");
  s.option(
       "ckpt_convert_format", &O::ckpt_convert_format,
       "Format into which the checkpoint in `load_checkpoint` is converted, as in `ckpt_format`: it is loaded, saved "
       "in the folder of that name in `ckpt_convert_save`, and the run ends without training; null: no conversion.")
      .must(
          "C7",
          [](const O& o) {
            return !o.ckpt_convert_format || (o.ckpt_convert_save && (o.load_checkpoint || o.pretrained_checkpoint));
          },
          [](const O& o) {
            return text("ckpt_convert_format is ", *o.ckpt_convert_format, ", but ",
                        o.ckpt_convert_save ? "load_checkpoint" : "ckpt_convert_save", " is null");
          },
          "give load_checkpoint and ckpt_convert_save, or leave ckpt_convert_format out",
          {"ckpt_convert_save", "load_checkpoint"});
  s.option("ckpt_convert_save", &O::ckpt_convert_save, "Folder for the converted checkpoint.")
      .matters_when([](const O& o) { return o.ckpt_convert_format.has_value(); }, "`ckpt_convert_format` is null");
  s.option(
       "prefix", &O::prefix,
       "Prefix of the names of checkpoints in Tessera's format, which are in output_dir/checkpoints; those of other "
       "formats have none.")
      .alias("ckpt_prefix")
      .must(
          "part of a file name", [](const O& o) { return is_part_of_file_name(o.prefix); },
          [](const O& o) { return text("prefix is '", o.prefix, "', ", no_file_name); },
          "give a shorter name without them; output_dir selects the folder");
  s.option("crc_check", &O::crc_check, "Verify all checksums when a checkpoint is loaded.")
      .alias("resume_crc_check")
      .matters_when(loads, no_load);
  s.option("keep_checkpoint_max", &O::keep_checkpoint_max,
           "Maximum number of checkpoints of this run to keep, of all formats; the oldest is deleted first.")
      .above(0)
      .at_most(1000000000);
  s.option("save_retain_interval", &O::save_retain_interval,
           "Checkpoints of iterations that are multiples of this are kept beside the newest `keep_checkpoint_max`; "
           "null: none.")
      .above(0)
      .at_most(options::most_steps)
      .unit("steps");
  s.option(
       "dist_ckpt_strictness", &O::dist_ckpt_strictness,
       "What happens if tensors of the run are not in the checkpoint, or the reverse. raise_all: both are errors; "
       "raise_unexpected, assume_ok_unexpected: only what the checkpoint lacks is an error; log_unexpected, "
       "return_unexpected: what it lacks keeps its initial values and is logged; log_all, return_all: also what only "
       "the checkpoint has is logged; ignore_all: neither is logged. In every format.")
      .matters_when(loads, no_load);
  s.option(
       "no_load_optim", &O::no_load_optim,
       "Do not load the optimizer state of the checkpoint; it starts at zero. What a job has saved itself is loaded "
       "whole.")
      .matters_when(loads, no_load);
  s.option("no_load_rng", &O::no_load_rng, "Do not load the random seed of the checkpoint; use `seed` of this recipe.")
      .matters_when(loads, no_load);
  s.option("load_main_params_from_ckpt", &O::load_main_params_from_ckpt,
           "With `no_load_optim` or `resume_training: false`, and weights of 16 bits: the fp32 main weights begin with "
           "the values of the checkpoint (null or true), or with these rounded to 16 bits as the model reads them "
           "(false), as in Megatron-LM without the flag.")
      .matters_when(loads, no_load)
      .must(
          "main weights without optimizer state",
          [](const O& o) { return !o.load_main_params_from_ckpt.value_or(false) || o.no_load_optim; },
          [](const O&) { return std::string("load_main_params_from_ckpt is true, but no_load_optim is false"); },
          "give no_load_optim: true, or leave load_main_params_from_ckpt out", {"no_load_optim"});
  s.option("allow_changes", &O::allow_changes,
           "Options whose values may differ from those that the loaded checkpoint was saved with although a change is "
           "refused, because the weights or the optimizer state then mean something else; as group.option, for example "
           "model_config.norm_epsilon.")
      .matters_when(loads, no_load)
      .no_flag("only Tessera has it");
}

void describe_resources(options::Schema<O>& s) {
  s.option("num_threads", &O::num_threads, "Number of compute threads; does not affect results.")
      .above(0)
      .at_most(options::most_threads)
      .otherwise("one per usable core (CPU quota included), shared evenly by the ranks of a host")
      .no_flag("only Tessera has it");
  s.option("distributed_timeout_minutes", &O::distributed_timeout_minutes,
           "Communication timeout, in minutes: how long a rank waits for others before the run ends and names the "
           "missing ranks.")
      .above(0)
      .at_most(options::most_minutes)
      .unit("minutes");
}

}  // namespace

void describe(options::Schema<TrainingOptions>& s) {
  s.when_changed(options::Change::silent);
  describe_stage(s);
  describe_run(s);
  describe_logging(s);
  describe_checks(s);
  describe_evaluation(s);
  describe_saving(s);
  describe_non_persistent(s);
  describe_resuming(s);
  describe_checkpoints(s);
  describe_resources(s);
}

}  // namespace tessera::training
