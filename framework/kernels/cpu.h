#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Instruction sets that kernels exist for, the least first. Each includes the ones before it.
enum class Isa { portable, avx2, avx512 };

std::string_view name_of(Isa isa);
/// What this machine can run, from `portable` up.
std::vector<Isa> available_isas();
/// The set all kernels use: the highest available, or the one the environment variable TESSERA_CPU names. Chosen
/// once, at the first call. Throws ConfigError when TESSERA_CPU names none, or one that this machine does not have.
Isa chosen_isa();
/// For tests: use `isa` from now on. Not while kernels run.
void force_isa(Isa isa);
/// "AMD EPYC, 2 cores: portable avx2 avx512 (using avx512)", for the head of a run and of every benchmark.
std::string describe_cpu();

}  // namespace tessera
