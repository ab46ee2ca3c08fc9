#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Instruction sets that kernels exist for, the least first. Each includes the ones before it.
///   portable   what every x86-64 has (other processors: what their compiler takes for granted); Highway code may use
///              SSE4 where it is found, never more
///   avx2       AVX2, FMA and F16C
///   avx512     AVX-512 F, BW, DQ and VL besides
enum class Isa { portable, avx2, avx512 };

std::string_view name_of(Isa isa);
/// What this machine can run, from `portable` up: what the processor has and the operating system saves.
std::vector<Isa> available_isas();
/// The set all kernels use: the highest available, or the one the environment variable TESSERA_CPU names. Chosen
/// once, at the first call. Throws ConfigError when TESSERA_CPU names none, or one that this machine does not have.
///
/// Choosing also limits Highway, so that HWY_DYNAMIC_DISPATCH takes the same set or a lesser one, never a greater:
/// the targets above the choice are taken from hwy::SupportedTargets() with hwy::DisableTargets. Making a Threads
/// calls this, so a kernel that was handed a crew need not.
Isa chosen_isa();
/// For tests: use `isa` from now on. Not while kernels run. Throws ConfigError when this machine does not have it.
void force_isa(Isa isa);
/// "AMD EPYC, 2 cores: portable avx2 avx512 (using avx512)", for the head of a run and of every benchmark.
std::string describe_cpu();

}  // namespace tessera
