#include "framework/nn/weight_parts.h"

#include <algorithm>
#include <iterator>

namespace tessera::nn {

std::vector<WeightPart> held_parts(const std::vector<Parameter*>& parameters) {
  std::vector<WeightPart> parts;
  for (const auto* parameter : parameters)
    parts.push_back(
        {parameter->name, parameter->role, parameter->global_shape, boxes_of(*parameter, {0, parameter->elements()})});
  return parts;
}

std::vector<WeightPart> owned_parts(const std::vector<Parameter*>& parameters) {
  std::vector<WeightPart> parts;
  for (const auto* parameter : parameters) {
    WeightPart part{parameter->name, parameter->role, parameter->global_shape, {}};
    for (const auto& range : parameter->owned())
      std::ranges::move(boxes_of(*parameter, range), std::back_inserter(part.boxes));
    if (!part.boxes.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tessera::nn
