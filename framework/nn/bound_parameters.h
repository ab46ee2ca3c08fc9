#pragma once

#include <algorithm>
#include <span>

#include "framework/kernels/type_conversion.h"
#include "framework/nn/flat_parameters.h"

// Memory for the parameters of a module alone. A run's parameters are bound by training::SharedState.

namespace tessera::nn {

/// Makes value and gradient of every parameter of `layout` views of its range in these arrays of the caller:
///
///   values      elements() floats; the values of parameters of a 16-bit type are elsewhere
///   gradients   elements() floats; empty: no parameter has a gradient
///   rounded     2 * elements() bytes: the values of parameters of a 16-bit type; may be empty if there are none
inline void bind_parameters(const FlatParameters& layout, std::span<float> values, std::span<float> gradients,
                            std::span<std::byte> rounded = {}) {
  for (const auto& range : layout.ranges()) {
    auto& parameter = *range.parameter;
    parameter.leaf.value =
        parameter.type == DType::float32
            ? FlatParameters::view(range, values)
            : Tensor(rounded.subspan(static_cast<std::size_t>(2 * range.first)), parameter.type, parameter.shape());
    parameter.leaf.bind_grad(gradients.empty() ? Tensor{} : FlatParameters::view(range, gradients));
  }
}

/// Writes the initial values of bound parameters to `values`, and rounded to those of a 16-bit type.
inline void initialise_parameters(const FlatParameters& layout, kernels::Threads& threads, std::uint64_t seed,
                                  std::span<float> values) {
  for (const auto& range : layout.ranges()) {
    const auto own = FlatParameters::view(range, values).floats();
    FlatParameters::initialise(threads, seed, *range.parameter, own);
    if (range.parameter->type != DType::float32) kernels::narrow(threads, own, range.parameter->leaf.value);
  }
}

}  // namespace tessera::nn
