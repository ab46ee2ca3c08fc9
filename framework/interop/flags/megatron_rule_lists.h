#pragma once

#include "framework/interop/flags/megatron_rules.h"

// The parts of megatron_rules(), one source file each: Megatron-LM's checks of its arguments, within a part in the
// order in which Megatron-LM makes them. Each list is made once and lives as long as the program.

namespace tessera::flags {

using RuleFlags = std::vector<std::string>;

/// The rule `name` about `flags`, which is broken if `broken` is true.
MegatronRule rule(const char* name, RuleFlags flags, const char* message, const char* advice,
                  std::function<bool(const AskedFlags&)> broken);
/// One of `flags` is required.
MegatronRule required(const char* name, RuleFlags flags);
/// At most one of `flags` is given.
MegatronRule exclusive(const char* name, RuleFlags flags);
/// `flag` requires all `others`.
MegatronRule needs(const char* name, const char* flag, RuleFlags others);
/// `flag` is given with none of `others`.
MegatronRule excludes(const char* name, const char* flag, RuleFlags others);
/// Megatron-LM has removed `flag`; `by` replaces it.
MegatronRule replaced(const char* name, const char* flag, const char* by);

/// The lists `parts` as one.
std::vector<MegatronRule> one_list(const std::vector<std::vector<MegatronRule>>& parts);

/// Rules of the model, its experts and recomputation: M, MOE and REC of docs/rules.md.
const std::vector<MegatronRule>& megatron_model_rules();
/// Rules of parallelism and of communication: PAR.
const std::vector<MegatronRule>& megatron_parallel_rules();
/// Rules of batches, data, the optimizer, precision and checkpoints: B, DAT, O, MP and C.
const std::vector<MegatronRule>& megatron_run_rules();

}  // namespace tessera::flags
