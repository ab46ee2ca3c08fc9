#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::kernels {

/// Instruction sets that kernels are compiled for, in ascending order. Each includes the ones before it.
///
///   portable      the baseline of x86-64 (on other processors: the compiler's default). Highway code may use SSE4
///                 where the processor has it, never more
///   avx2          AVX2, FMA and F16C
///   avx512        AVX-512 F, BW, DQ and VL
///   avx512_bf16   avx512 and AVX512_BF16: products of bfloat16 pairs
///   amx           avx512_bf16 and AMX_TILE, AMX_BF16: products of bfloat16 pairs in tile registers
enum class Isa { portable, avx2, avx512, avx512_bf16, amx };

/// "portable", "avx2", "avx512", "avx512_bf16" or "amx": the values that the environment variable TESSERA_CPU accepts.
std::string_view name_of(Isa isa);
/// The sets this machine can run, in ascending order, beginning with `portable`. A set counts only if the processor has
/// it and the operating system saves its registers. The first call asks Linux for permission to use tile registers.
std::vector<Isa> available_isas();
/// The set that all kernels of this process use: the one named by the environment variable TESSERA_CPU, else the
/// fastest available. That is the highest, but `avx512` instead of `avx512_bf16` on processors of Intel, which multiply
/// bfloat16 pairs at half the rate of floats. Chosen once, at the first call. Throws ConfigError if TESSERA_CPU
/// names no set, or one that this machine does not have.
///
/// The choice also limits Highway: targets above it are removed with hwy::DisableTargets, so HWY_DYNAMIC_DISPATCH takes
/// the same set or a lower one. The constructor of Threads calls this function; a kernel that takes a Threads need not.
Isa chosen_isa();
/// For tests: use `isa` from now on. Must not be called while kernels run. Throws ConfigError if this machine does not
/// have it.
void force_isa(Isa isa);
/// The processor's name, "AMD EPYC 9654 96-Core Processor"; "processor" if it reports none.
std::string processor_name();
/// For example "AMD EPYC, 2 cores: portable avx2 avx512 (using avx512)". Printed by a run and by every benchmark.
std::string describe_cpu();

}  // namespace tessera::kernels
