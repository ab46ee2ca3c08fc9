#include "framework/nn/module.h"

namespace tessera::nn {

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  for (const auto& [own, part] : order_) {
    if (own) {
      all.push_back(own);
      continue;
    }
    const auto inside = part->parameters();
    all.insert(all.end(), inside.begin(), inside.end());
  }
  return all;
}

Parameter& Module::declare(const std::string& name, ParameterRole role, const Shape& shape, Init init, TensorCut cut) {
  auto& parameter = own_.emplace_back();
  parameter.name = inner(name);
  parameter.role = role;
  parameter.global_shape = shape;
  parameter.init = init;
  parameter.cut = std::move(cut);
  order_.push_back({&parameter, nullptr});
  return parameter;
}

}  // namespace tessera::nn
