#include "framework/training/training_options.h"

namespace tessera {

void describe(Schema<TrainingOptions>& s) {
  using O = TrainingOptions;
  s.option("seed", &O::seed, "Root of every random number of the run.").at_least(0);
  s.option("training_iters", &O::training_iters,
           "Length of the run; 0: said by epochs or dataset_config.train_samples.")
      .at_least(0)
      .alias("train_iters")
      .unit("steps");
  s.option("epochs", &O::epochs, "Passes over the training split; with training_iters too, what is over first ends.")
      .above(0);
  s.option("output_dir", &O::output_dir, "The run folder: everything that the run writes lies below it.").alias("save");

  s.option("log_interval", &O::log_interval, "Steps from one line of progress to the next.").above(0).unit("steps");
  s.option("log_style", &O::log_style, "Whose format a plain line of progress follows.");
  s.option("tensorboard", &O::tensorboard, "Also write TensorBoard event files, in output_dir/tensorboard.");

  s.option("calculate_per_token_loss", &O::calculate_per_token_loss,
           "Every token of a step has the same weight; false: every micro-batch has.");
  s.option("check_for_nan_in_grad", &O::check_for_nan_in_grad,
           "Stop at a loss or gradient that is not finite, naming the first value; an adapting loss scale needs some.")
      .alias("check_for_nan_in_loss_and_grad");
  s.option("iterations_to_skip", &O::iterations_to_skip,
           "Steps, by the number of steps before each, whose samples are passed over.")
      .at_least(0)
      .alias("skip_train_iterations");
  s.option("log_num_zeros_in_grad", &O::log_num_zeros_in_grad, "Count gradients that are exactly zero.");
  s.option("log_params_norm", &O::log_params_norm, "Compute the L2 norm of all weights after each step.");

  s.option("eval_interval", &O::eval_interval, "Steps from one evaluation to the next; 0: none is made.")
      .at_least(0)
      .unit("steps");
  s.option("eval_iters", &O::eval_iters, "Global batches that one evaluation reads; 0: none is made.").at_least(0);

  s.option("save_interval", &O::save_interval, "Steps from one checkpoint to the next; null or 0: only at the end.")
      .at_least(0)
      .unit("steps");
  s.option("exit_interval", &O::exit_interval, "Save and stop after the first step that this divides; 0: at none.")
      .at_least(0)
      .unit("steps");
  s.option("exit_duration_in_mins", &O::exit_duration_in_mins,
           "Save and stop after the step in which so much time is up; 0: time is not watched.")
      .at_least(0)
      .unit("minutes");

  s.option("resume_training", &O::resume_training,
           "auto: go on from the newest good checkpoint if there is one; true: there must be one; false: begin anew.");
  s.option("load_checkpoint", &O::load_checkpoint,
           "Folder to begin from: checkpoints of ours or of Megatron-LM, or a model of Hugging Face Transformers; "
           "null: what "
           "output_dir holds.")
      .alias("load");
  s.option("exit_on_missing_checkpoint", &O::exit_on_missing_checkpoint,
           "load_checkpoint must hold one also where it is output_dir itself; false: such a run may begin anew.");
  s.option("ckpt_format", &O::ckpt_format,
           "Format of checkpoints: safetensors (or null) is our own, torch that of Megatron-LM's --ckpt-format torch. "
           "Either "
           "is loaded.");
  s.option("prefix", &O::prefix, "First part of the names of checkpoint files.").alias("ckpt_prefix");
  s.option("crc_check", &O::crc_check, "Compare each checksum when a checkpoint is read.").alias("resume_crc_check");
  s.option("keep_checkpoint_max", &O::keep_checkpoint_max, "How many checkpoints are kept; the oldest goes first.")
      .above(0);
  s.option("no_load_optim", &O::no_load_optim,
           "Leave the optimizer's state of the checkpoint unread; it starts at zero.");
  s.option("no_load_rng", &O::no_load_rng,
           "Leave the seed of the checkpoint unread; random numbers follow this recipe's seed.");

  s.option(
       "num_threads", &O::num_threads,
       "Threads that compute; null: one for each core, which the ranks of a host share evenly. Results do not depend "
       "on it.")
      .above(0);
  s.option("distributed_timeout_minutes", &O::distributed_timeout_minutes,
           "How long a rank waits for the others before the run ends and names those that did not come.")
      .above(0)
      .unit("minutes");
}

}  // namespace tessera
