#pragma once

#include <string>

#include "framework/kernels/vector.h"
#include "framework/optim/optimizer.h"

namespace tessera::optim {

// Shared by the optimizers of the Adam family. Internal to this component. `Options` is a plain struct with the members
// `betas` and `eps`, so that each optimizer keeps its own defaults.

/// Declares the options betas and eps with their aliases and the given descriptions.
template <class Options>
void describe_adam(options::Schema<Options>& s, std::string betas_doc, std::string eps_doc) {
  s.option("betas", &Options::betas, std::move(betas_doc))
      .at_least(0)
      .below(1)
      .alias("adam_beta1", 0)
      .alias("adam_beta2", 1)
      .alias("beta1", 0)
      .alias("beta2", 1);
  s.option("eps", &Options::eps, std::move(eps_doc)).above(0).at_most(1).alias("adam_eps");
}

/// Names of the state tensors: first moment, second moment.
std::vector<std::string> adam_slots();

/// Returns `s` with its bias corrections set to 1 - beta^step for each of the two moments, which start at zero.
StepScalars bias_corrected(const std::array<double, 2>& betas, StepScalars s);

/// The factors of one AdamW update of a block, from the options and the scalars of the step.
template <class Options>
kernels::AdamWFactors adamw_factors(const Options& o, const StepScalars& s) {
  return {.lr = s.lr,
          .beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .eps = o.eps,
          .decay = s.weight_decay,
          .clip = s.clip,
          .fix1 = s.bias_correction[0],
          .fix2 = s.bias_correction[1]};
}

}  // namespace tessera::optim
