#include "framework/checkpoint/copy_converted.h"

#include <cstring>
#include <limits>
#include <type_traits>

namespace tessera::checkpoint {
namespace {

template <class T>
constexpr bool is_integer = std::is_integral_v<T>;

template <class T>
T load(const std::byte* at, std::int64_t i) {
  T out;
  std::memcpy(&out, at + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return out;
}

template <class To, class From>
To narrowed(From value) {
  if constexpr (is_integer<From>) {
    if (static_cast<std::int64_t>(static_cast<To>(value)) != static_cast<std::int64_t>(value))
      throw ConfigError(
          text("conversion: ", static_cast<std::int64_t>(value), " does not fit ", name_of(TypeOf<To>::value)));
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<From, float>) {
    if constexpr (std::is_same_v<To, double>)
      return value;
    else
      return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(static_cast<float>(value));  // the 16-bit types widen exactly
  }
}

template <class From, class To>
void copy(const Tensor& from, const Tensor& into) {
  if constexpr (is_integer<From> != is_integer<To>) {
    throw ConfigError(text("conversion: ", name_of(from.dtype()), " cannot become ", name_of(into.dtype())));
  } else {
    const auto* source = from.raw().data();
    const auto target = into.as<To>();
    const auto count = from.elements();
    for (std::int64_t i = 0; i < count; ++i) target[static_cast<std::size_t>(i)] = narrowed<To>(load<From>(source, i));
  }
}

template <class Visitor>
void with_type(DType type, Visitor visit) {
  switch (type) {
    case DType::float32:
      return visit(float{});
    case DType::bfloat16:
      return visit(bfloat16{});
    case DType::float16:
      return visit(float16{});
    case DType::float64:
      return visit(double{});
    case DType::int64:
      return visit(std::int64_t{});
    case DType::int32:
      return visit(std::int32_t{});
    case DType::uint8:
      return visit(std::uint8_t{});
  }
}

/// The first dim from which on the elements of `part` are contiguous in the memory of both boxes.
std::size_t first_joined_dim(const Box& part, const Box& a, const Box& b) {
  std::size_t dim = part.extent.size() - 1;
  while (dim > 0 && part.extent[dim] == a.extent[dim] && part.extent[dim] == b.extent[dim]) --dim;
  return dim;
}

Tensor run_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  const auto size = size_of(tensor.dtype());
  return Tensor(tensor.raw().subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size),
                tensor.dtype(), Shape{count});
}

}  // namespace

void copy_converted(const Tensor& from, const Tensor& into) {
  if (from.elements() != into.elements())
    throw ShapeError(text("conversion: ", from.elements(), " elements cannot fill ", into.elements()));
  if (from.dtype() == into.dtype()) {
    if (from.bytes() != 0) std::memcpy(into.raw().data(), from.raw().data(), from.bytes());
    return;
  }
  with_type(from.dtype(), [&](auto source) {
    with_type(into.dtype(), [&](auto target) { copy<decltype(source), decltype(target)>(from, into); });
  });
}

void copy_box(const Box& part, const Tensor& from, const Box& from_box, const Tensor& into, const Box& into_box) {
  const auto joined = first_joined_dim(part, from_box, into_box);
  std::int64_t run = 1;
  for (auto dim = joined; dim < part.extent.size(); ++dim) run *= part.extent[dim];
  auto index = part.begin;
  while (true) {
    copy_converted(run_of(from, position_in(from_box, index), run), run_of(into, position_in(into_box, index), run));
    auto dim = joined;
    while (dim > 0 && ++index[dim - 1] == part.begin[dim - 1] + part.extent[dim - 1]) {
      index[dim - 1] = part.begin[dim - 1];
      --dim;
    }
    if (dim == 0) return;
  }
}

}  // namespace tessera::checkpoint
