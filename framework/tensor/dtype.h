#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// The element types of tensors and files.
enum class DType : std::uint8_t { float32, bfloat16, float16, float64, int64, int32, uint8 };

/// bfloat16: the upper half of a float. Conversion from float rounds to nearest, ties to even, and keeps NaN.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16. Conversion from float rounds to nearest, ties to even, including subnormals; overflow gives
/// infinity.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
};

/// The DType of a C++ type: TypeOf<float>::value.
template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct TypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct TypeOf<bfloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct TypeOf<float16> {
  static constexpr DType value = DType::float16;
};
template <>
struct TypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct TypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct TypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};

std::size_t size_of(DType type);                ///< bytes of one element
std::string_view name_of(DType type);           ///< "float32"
std::string_view safetensors_name(DType type);  ///< "F32", the name in safetensors headers

/// The type with this name ("float32" or "F32"). Throws ConfigError, listing the names, if there is none.
DType dtype_named(std::string_view name);

}  // namespace tessera
