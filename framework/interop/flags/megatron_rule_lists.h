#pragma once

#include "framework/interop/flags/megatron_rules.h"

// The parts of megatron_rules(), a file each.

namespace tessera::flags {

const std::vector<MegatronRule>& megatron_model_rules();
const std::vector<MegatronRule>& megatron_parallel_rules();
const std::vector<MegatronRule>& megatron_run_rules();

}  // namespace tessera::flags
