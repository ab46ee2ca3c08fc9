#include "framework/nn/weight_parts.h"

namespace tessera::nn {
namespace {

void add_boxes(const Parameter& parameter, ElementRange elements, std::vector<Box>& boxes) {
  for (const auto& placed : boxes_of(parameter, elements)) boxes.push_back(Box::of(placed.offsets, placed.shape));
}

}  // namespace

std::vector<WeightPart> held_parts(const std::vector<Parameter*>& parameters) {
  std::vector<WeightPart> parts;
  for (const auto* parameter : parameters) {
    parts.push_back({parameter->name, parameter->role, parameter->global_shape, {}});
    add_boxes(*parameter, {0, parameter->elements()}, parts.back().boxes);
  }
  return parts;
}

std::vector<WeightPart> owned_parts(const std::vector<Parameter*>& parameters) {
  std::vector<WeightPart> parts;
  for (const auto* parameter : parameters) {
    WeightPart part{parameter->name, parameter->role, parameter->global_shape, {}};
    for (const auto& range : parameter->owned()) add_boxes(*parameter, range, part.boxes);
    if (!part.boxes.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tessera::nn
