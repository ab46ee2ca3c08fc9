#pragma once

#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/training/options/training_options.h"

// training_config.dist_ckpt_strictness: names of tensors that only a checkpoint or only the run has.

namespace tessera::training {

/// Removes from `ranges` the tensors that `given` lacks, if the run may lack them: they keep what they have.
void leave_out_lacking(const checkpoint::WeightSource& given, const TrainingOptions& options,
                       std::vector<checkpoint::TensorRange>& ranges);

/// `all`, names and shapes of all weights of the model, without those that `given` may lack and with those that only
/// `given` may have, with their shapes there. `notes` get a line for each kind that is to be logged. Throws ConfigError
/// if `given` has none of the weights.
std::vector<checkpoint::TensorRange> as_far_as_strict(const checkpoint::WeightSource& given,
                                                      std::vector<checkpoint::TensorRange> all,
                                                      const TrainingOptions& options, std::vector<std::string>& notes);

}  // namespace tessera::training
