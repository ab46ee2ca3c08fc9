#pragma once

#include "framework/recipe/registries.h"

namespace tessera::cli {

/// The whole program: read `argv`, do what it says, return the exit code (0 done; 2 what was given is wrong and nothing
/// was started; 1 a failed operation or a bug). Never throws. A program of a user's own puts its things on `registries`
/// and calls this from its `main`.
int run(int argc, char** argv, recipe::Registries registries = {});

}  // namespace tessera::cli
