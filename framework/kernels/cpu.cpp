#include "framework/kernels/cpu.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "framework/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::kernels {
namespace {

constexpr std::array<Isa, 5> every_isa = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// One leaf of the CPUID instruction; zeros if the processor does not have it.
Registers cpuid(unsigned leaf, unsigned part = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

/// Whether all of these bits are set in `word`.
bool has(unsigned word, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [&](int bit) { return (word >> bit & 1) != 0; });
}

/// The register states that the operating system saves on a context switch (XCR0); 0 if they cannot be read. Without
/// this check AVX-512 code would crash, or lose registers, on a system that has AVX-512 disabled.
std::uint64_t saved_states(const Registers& features) {
  constexpr int osxsave = 27;
  if (!has(features.ecx, {osxsave})) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

/// Asks Linux for permission to use the data of tile registers; it is granted to all threads of the process. Kernels
/// before 5.16 refuse, and so do later ones if the process has a signal stack that is too small for these registers.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long ask = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM; the number of the state in XCR0
  return syscall(SYS_arch_prctl, ask, tile_data) == 0;
#else
  return false;
#endif
}

Isa best_isa() {
  const Registers features = cpuid(1), extended = cpuid(7);
  const std::uint64_t saved = saved_states(features);
  constexpr std::uint64_t ymm = 0x06, zmm = 0xe6;             // bits of XCR0: SSE and AVX; and AVX-512's three states
  constexpr int fma = 12, avx = 28, f16c = 29;                // leaf 1, ecx
  constexpr int avx2 = 5, f = 16, dq = 17, bw = 30, vl = 31;  // leaf 7, ebx
  if ((saved & ymm) != ymm || !has(features.ecx, {fma, avx, f16c}) || !has(extended.ebx, {avx2})) return Isa::portable;
  if ((saved & zmm) != zmm || !has(extended.ebx, {f, dq, bw, vl})) return Isa::avx2;
  constexpr int bf16 = 5;  // leaf 7, part 1, eax
  if (extended.eax < 1 || !has(cpuid(7, 1).eax, {bf16})) return Isa::avx512;
  constexpr std::uint64_t tiles = 0x60000;     // XCR0: the configuration and the data of tile registers
  constexpr int amx_bf16 = 22, amx_tile = 24;  // leaf 7, edx
  const bool has_tiles = (saved & tiles) == tiles && has(extended.edx, {amx_bf16, amx_tile});
  return has_tiles && may_use_tiles() ? Isa::amx : Isa::avx512_bf16;
}

/// Intel's processors start one product of bfloat16 pairs (VDPBF16PS, 512 bits) in two cycles, but two multiply-adds
/// of floats in each, so products of widened floats need .57 of the time (Sapphire Rapids, 1260 x 1280 x 5120, one
/// thread). AMD's multiply pairs at twice the rate of floats.
bool pairs_are_slow() {
  const Registers vendor = cpuid(0);
  constexpr unsigned genu = 0x756e6547, inei = 0x49656e69, ntel = 0x6c65746e;  // "GenuineIntel", little endian
  return vendor.ebx == genu && vendor.edx == inei && vendor.ecx == ntel;
}

/// The processor's name, CPUID leaves 0x80000002 to 0x80000004.
std::string brand() {
  std::array<unsigned, 13> words{};  // 48 characters and a zero
  if (cpuid(0x80000000).eax < 0x80000004) return "x86-64 processor";
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002 + i);
    const std::array<unsigned, 4> part = {r.eax, r.ebx, r.ecx, r.edx};
    std::copy(part.begin(), part.end(), words.begin() + 4 * i);
  }
  std::string name(reinterpret_cast<const char*>(words.data()));
  const auto first = name.find_first_not_of(' '), last = name.find_last_not_of(' ');
  return first == std::string::npos ? "x86-64 processor" : name.substr(first, last - first + 1);
}

#else

Isa best_isa() { return Isa::portable; }
bool pairs_are_slow() { return false; }
std::string brand() { return "processor"; }

#endif

std::string names_of(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) names.append(names.empty() ? "" : " ").append(name_of(isa));
  return names;
}

/// The set that TESSERA_CPU names, or the fastest if it is unset.
Isa from_environment() {
  const auto isas = available_isas();
  const char* requested = std::getenv("TESSERA_CPU");
  if (requested == nullptr || *requested == '\0')
    return isas.back() == Isa::avx512_bf16 && pairs_are_slow() ? Isa::avx512 : isas.back();
  const auto named = std::find_if(isas.begin(), isas.end(), [&](Isa isa) { return name_of(isa) == requested; });
  if (named != isas.end()) return *named;
  const bool known =
      std::any_of(every_isa.begin(), every_isa.end(), [&](Isa isa) { return name_of(isa) == requested; });
  throw ConfigError(text("cpu: TESSERA_CPU is '", requested, "', ",
                         known ? "which this machine does not have" : "which is not an instruction set",
                         "; give one of: ", names_of(isas), ", or leave it unset for the fastest"));
}

/// Keeps Highway's dispatch at or below `isa`. DisableTargets replaces its earlier setting and resets the dispatch, so
/// the targets have to be detected again.
Isa limit_highway(Isa isa) {
  std::int64_t above = 0;
  if (isa < Isa::avx512) above |= HWY_AVX3 | HWY_AVX3_DL;
  if (isa < Isa::avx2) above |= HWY_AVX2;
  hwy::DisableTargets(above);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return isa;
}

/// The choice of this process. A function-local static: initialized at the first call, in one thread only.
std::atomic<Isa>& choice() {
  static std::atomic<Isa> isa = limit_highway(from_environment());
  return isa;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  static const Isa best = best_isa();
  return {every_isa.begin(), std::find(every_isa.begin(), every_isa.end(), best) + 1};
}

Isa chosen_isa() { return choice().load(std::memory_order_relaxed); }

void force_isa(Isa isa) {
  const auto isas = available_isas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    throw ConfigError(text("cpu: ", name_of(isa), " was asked for; this machine has: ", names_of(isas)));
  choice().store(limit_highway(isa));
}

std::string processor_name() { return brand(); }

std::string describe_cpu() {
  return text(brand(), ", ", std::thread::hardware_concurrency(), " cores: ", names_of(available_isas()), " (using ",
              name_of(chosen_isa()), ")");
}

}  // namespace tessera::kernels
