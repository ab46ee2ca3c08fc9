#include "framework/kernels/cpu.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdlib>

#include "framework/base/error.h"
#include "framework/kernels/gemm.h"
#include "framework/kernels/machine_limits.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

TEST(Cpu, EveryMachineHasThePortableSetAndTheChosenOne) {
  const auto isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::portable);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
  EXPECT_NE(std::find(isas.begin(), isas.end(), chosen_isa()), isas.end());
}

/// The set that is chosen if nothing is asked for.
Isa fastest() {
  const auto highest = available_isas().back();
#if defined(__x86_64__)
  if (highest == Isa::avx512_bf16 && __builtin_cpu_is("intel")) return Isa::avx512;
#endif
  return highest;
}

TEST(Cpu, TheEnvironmentVariableIsObeyed) {
  const char* wish = std::getenv("TESSERA_CPU");
  EXPECT_EQ(name_of(chosen_isa()), wish != nullptr ? std::string_view(wish) : name_of(fastest()));
}

/// Runs in a process of its own, because the choice is made once.
[[noreturn]] void choose_with(const char* wish) {
  setenv("TESSERA_CPU", wish, 1);
  try {
    std::fprintf(stderr, "chose %s", std::string(name_of(chosen_isa())).c_str());
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "refused: %s", error.what());
  }
  std::exit(0);
}

TEST(CpuDeathTest, ASetThatNobodyKnowsIsRefusedWithTheListOfThoseThatWork) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(choose_with("sse9"), testing::ExitedWithCode(0),
              "refused: cpu: TESSERA_CPU is 'sse9', which is not an instruction set; give one of: portable");
}

TEST(CpuDeathTest, TheSetWithProductsOfPairsIsChosenUnlessFloatsAreFasterAsOnProcessorsOfIntel) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(choose_with(""), testing::ExitedWithCode(0), "chose " + std::string(name_of(fastest())) + "$");
}

TEST(CpuDeathTest, ALowerSetCanBeForcedFromOutside) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(choose_with("portable"), testing::ExitedWithCode(0), "chose portable");
}

using CpuOfEverySet = ForEveryIsa;
FOR_EVERY_ISA(CpuOfEverySet);

TEST_P(CpuOfEverySet, HighwayNeverTakesAHigherSetThanTheChosen) {
  const auto targets = hwy::SupportedTargets();
  EXPECT_EQ(chosen_isa(), GetParam());
  EXPECT_NE(describe_cpu().find("(using " + std::string(name_of(GetParam())) + ")"), std::string::npos);
  if (GetParam() < Isa::avx512) {
    EXPECT_EQ(targets & (HWY_AVX3 | HWY_AVX3_DL), 0);
  }
  if (GetParam() < Isa::avx2) {
    EXPECT_EQ(targets & HWY_AVX2, 0);
  }
  if (GetParam() >= Isa::avx512) {
    EXPECT_NE(targets & HWY_AVX3, 0);
  }
}

TEST_P(CpuOfEverySet, ItsPairTileIsAsFastAsItsProductsOrFaster) {
  Threads threads(1);
  const double tile = pair_tile_rate(threads);
  if (pair_tiles() == nullptr) {
    EXPECT_EQ(tile, 0);
  } else {
    const double products = product_rate(threads, DType::bfloat16, 0.1);
    EXPECT_GT(tile, 0.5 * products);  // half: other programs disturb both
    EXPECT_LT(tile, 4 * products);    // tiles of AMX wait for the L2 cache in a product
  }
}

TEST(Cpu, OnlyASetThatThisMachineHasCanBeForced) {
  const auto isas = available_isas();
  const Isa before = chosen_isa();
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (std::find(isas.begin(), isas.end(), isa) == isas.end()) {
      EXPECT_THROW(force_isa(isa), ConfigError);
    } else {
      EXPECT_NO_THROW(force_isa(isa));
    }
  }
  force_isa(before);
}

}  // namespace
}  // namespace tessera::kernels
