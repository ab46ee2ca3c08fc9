#include "framework/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

TEST(DType, EveryBfloat16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    bfloat16 x;
    x.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(x);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(value))));
    else
      ASSERT_EQ(bfloat16(value).bits, bits);
  }
}

TEST(DType, EveryFloat16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    float16 x;
    x.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(x);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(value))));
    else
      ASSERT_EQ(float16(value).bits, bits);
  }
}

TEST(DType, RoundingIsToNearestWithTiesToEven) {
  EXPECT_EQ(bfloat16(1.0F + 0x1p-8F).bits, bfloat16(1.0F).bits);              // half way: down to the even one
  EXPECT_EQ(static_cast<float>(bfloat16(1.0F + 0x1.8p-7F)), 1.0F + 0x1p-6F);  // half way: up to the even one
  EXPECT_EQ(static_cast<float>(float16(1.0F + 0x1p-11F)), 1.0F);
  EXPECT_EQ(static_cast<float>(float16(1.0F + 0x1.8p-10F)), 1.0F + 0x1p-9F);
  EXPECT_EQ(static_cast<float>(float16(65520.0F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(float16(65519.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(float16(0x1p-25F)), 0.0F);
  EXPECT_EQ(static_cast<float>(float16(0x1.8p-25F)), 0x1p-24F);
}

TEST(DType, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  EXPECT_EQ(dtype_named("BF16"), DType::bfloat16);
  try {
    dtype_named("fp8");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

TEST(Tensor, AnotherTypeOrTooLittleMemoryIsRefused) {
  std::vector<float> memory(6);
  const Tensor t(std::span<float>(memory), {2, 3});
  EXPECT_THROW(t.as<std::int32_t>(), ShapeError);
  EXPECT_THROW(Tensor(std::span<float>(memory), {2, 4}), ShapeError);
  EXPECT_THROW(t.reshaped({4, 2}), ShapeError);
  EXPECT_THROW(t.slice(1, 2), ShapeError);
}

TEST(Tensor, SlicesAndShapesLookAtTheSameElements) {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5};
  const Tensor t(std::span<float>(memory), {3, 2});
  EXPECT_EQ(t.slice(1, 2).floats()[0], 2);
  EXPECT_EQ(t.slice(1, 2).shape(), (Shape{2, 2}));
  t.reshaped({6}).floats()[5] = 9;
  EXPECT_EQ(memory[5], 9);
  EXPECT_EQ(t.shape().rows(), 3);
  EXPECT_EQ(t.shape().width(), 2);
}

}  // namespace
}  // namespace tessera
