#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"

namespace tessera {

/// All elements of a tensor of a source.
inline std::vector<float> floats(const checkpoint::WeightSource& source, const std::string& name) {
  std::vector<float> out(static_cast<std::size_t>(source.shape(name).elements()));
  source.read(name, Tensor(std::span(out), source.shape(name)));
  return out;
}

}  // namespace tessera
