#pragma once

#include "framework/recipe/registries.h"

namespace tessera::cli {

/// Adds what Tessera itself registers beside the core: checkpoint formats, adapters and rules of other programs.
void add_interop(recipe::Registries& registries);

/// The whole program: parses `argv`, runs the command and returns the exit code: 0 success; 2 wrong input, nothing was
/// started; 1 a failed operation or a bug; commands may define others. Never throws. A program that extends Tessera
/// adds its types to `registries` and calls this function from its `main`.
int run(int argc, char** argv, recipe::Registries registries = {});

}  // namespace tessera::cli
