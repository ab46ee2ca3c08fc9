#pragma once

#include "framework/interop/flags/megatron_rules.h"

// The parts of megatron_rules(), a file each: Megatron-LM's checks of its arguments, in the order in which it makes
// them within a part. Each list is constructed once and lives as long as the program.

namespace tessera::flags {

/// Rules of the model, its experts and recomputation: M, MOE and REC of docs/rules.md.
const std::vector<MegatronRule>& megatron_model_rules();
/// Rules of parallelism and of communication: PAR.
const std::vector<MegatronRule>& megatron_parallel_rules();
/// Rules of batches, data, the optimizer, precision and checkpoints: B, DAT, O, MP and C.
const std::vector<MegatronRule>& megatron_run_rules();

}  // namespace tessera::flags
