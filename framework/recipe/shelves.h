#pragma once

#include "framework/optim/optimizer.h"
#include "framework/schedule/schedule.h"

namespace tessera {

/// What can be chosen by name. A user's own file puts its things on these and hands them to `run`.
struct Shelves {
  OptimizerRegistry optimizers = tessera::optimizers();
  DecayRegistry decays = tessera::decays();
};

}  // namespace tessera
