#pragma once

#include "framework/interop/flags/megatron_rules.h"

// The parts of megatron_rules(), one source file each: Megatron-LM's checks of its arguments, within a part in the
// order in which Megatron-LM makes them. Each list is made once and lives as long as the program.

namespace tessera::flags {

/// Rules of the model, its experts and recomputation: M, MOE and REC of docs/rules.md.
const std::vector<MegatronRule>& megatron_model_rules();
/// Rules of parallelism and of communication: PAR.
const std::vector<MegatronRule>& megatron_parallel_rules();
/// Rules of batches, data, the optimizer, precision and checkpoints: B, DAT, O, MP and C.
const std::vector<MegatronRule>& megatron_run_rules();

}  // namespace tessera::flags
