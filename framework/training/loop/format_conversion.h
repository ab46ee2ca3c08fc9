#pragma once

#include "framework/training/loop/trainer.h"

namespace tessera::training {

/// What a run with training_config.ckpt_convert_format does instead of training: loads the checkpoint that
/// load_checkpoint names, saves it in that format in the folder ckpt_convert_save/<format>, in the parallel layout of
/// the run, and ends. The run folder is neither read nor changed. Source: Megatron-LM, --ckpt-convert-format.
/// Collective. Throws ConfigError if there is no checkpoint, or if that folder has checkpoints already; IoError if it
/// cannot be written.
RunEnd convert_checkpoint(TrainingSetup setup);

}  // namespace tessera::training
