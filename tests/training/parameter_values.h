#pragma once

#include <vector>

#include "framework/kernels/weight.h"
#include "framework/nn/parameter.h"

namespace tessera::training {

/// The values of this rank's part of a parameter as operations read them: of a matrix that is `stored`, rounded.
inline std::vector<float> values_of(const nn::Parameter& parameter) {
  std::vector<float> out(static_cast<std::size_t>(parameter.elements()));
  const auto weight = parameter.leaf.weight();
  const auto width = weight.stored ? weight.stored->width : parameter.elements();
  for (std::int64_t row = 0; row * width < parameter.elements(); ++row)
    kernels::read_row(weight, row, width,
                      std::span(out).subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width)));
  return out;
}

}  // namespace tessera::training
