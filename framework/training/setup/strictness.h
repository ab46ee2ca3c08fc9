#pragma once

#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/frozen_weights.h"

// training_config.dist_ckpt_strictness: names of tensors that only a checkpoint or only the run has, trained or frozen.

namespace tessera::training {

/// Removes from `ranges` the tensors that `given` lacks, if the run may lack them: they keep what they have.
void leave_out_lacking(const checkpoint::WeightSource& given, const TrainingOptions& options,
                       std::vector<checkpoint::TensorRange>& ranges);

/// What `given` must have: `all`, names and shapes of all weights of the model, with the vocabulary paddings of
/// `given`, without those that it may lack and with those that only it may have, with their shapes there. `notes` get a
/// line for each kind that is to be logged. With moe_use_upcycling, `all`. Throws ConfigError if `given` has none of
/// the weights.
std::vector<checkpoint::TensorRange> expected_in(const checkpoint::OpenedCheckpoint& given,
                                                 std::vector<checkpoint::TensorRange> all, const TrainingSetup& setup,
                                                 std::vector<std::string>& notes);

/// Sets the frozen parameters that `given` lacks, if the run may lack them, to their initial values, of the seed
/// `options.seed`. The others stay as they are.
void draw_lacking(const checkpoint::WeightSource& given, const TrainingOptions& options, FrozenWeights& frozen);

}  // namespace tessera::training
