#include "framework/tensor/dtype.h"

#include <array>
#include <cmath>

#include "framework/base/error.h"

namespace tessera {
namespace {

struct Facts {
  DType type;
  std::size_t size;
  std::string_view name, safetensors;
};
constexpr std::array<Facts, 7> all = {{{DType::float32, 4, "float32", "F32"},
                                       {DType::bfloat16, 2, "bfloat16", "BF16"},
                                       {DType::float16, 2, "float16", "F16"},
                                       {DType::float64, 8, "float64", "F64"},
                                       {DType::int64, 8, "int64", "I64"},
                                       {DType::int32, 4, "int32", "I32"},
                                       {DType::uint8, 1, "uint8", "U8"}}};

const Facts& facts(DType type) { return all[static_cast<std::size_t>(type)]; }

}  // namespace

// Round to nearest even: add 0x7fff, and 1 more if the lowest remaining bit is 1. A NaN is made quiet instead, because
// the addition could turn it into infinity.
bfloat16::bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value))
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40);
  else
    bits = static_cast<std::uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

float16::float16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000);
  const auto magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    bits = sign | 0x7e00;
  } else if (magnitude >= 0x47800000) {
    bits = sign | 0x7c00;
  } else if (magnitude < 0x38800000) {  // subnormal: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  } else {
    const auto rounded = magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1);
    bits = static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
}

float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -small : small;
}

std::size_t size_of(DType type) { return facts(type).size; }
std::string_view name_of(DType type) { return facts(type).name; }
std::string_view safetensors_name(DType type) { return facts(type).safetensors; }

DType dtype_named(std::string_view name) {
  std::string known;
  for (const auto& one : all) {
    if (name == one.name || name == one.safetensors) return one.type;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw ConfigError(text("no element type '", name, "'; have ", known));
}

}  // namespace tessera
