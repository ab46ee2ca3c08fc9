#include "tests/golden/recorded_floors.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/base/error.h"

namespace tessera::golden {
namespace {

using Json = nlohmann::json;

/// The rule for tensors: eight times what float32 costs at best, and never below the last digits.
double tolerance_of(const Json& floor) {
  return std::max(8 * floor.at("float32_max_abs_deviation").get<double>(), 1e-6 * floor.at("max_abs").get<double>());
}

/// The rule for steps.
void compare_steps(const std::string& name, const std::vector<double>& computed, const Json& curve,
                   Comparison& comparison) {
  const auto recorded = curve.at(name).get<std::vector<double>>();
  const auto floors = curve.at("noise_floor").at(name).get<std::vector<double>>();
  if (computed.size() != recorded.size())
    return comparison.wrong(text(computed.size(), " steps; ", recorded.size(), " are recorded"));
  for (std::size_t k = 0; k < recorded.size(); ++k)
    comparison.compare(text(name, " of step ", k), computed[k], recorded[k],
                       std::max(8 * floors[k], 2e-6 * std::abs(recorded[k])));
}

}  // namespace

void compare_with_floors(const Values& computed, const checkpoint::SafetensorsReader& recorded, const Json& floors,
                         const std::set<std::string>& without_gradient, Comparison& comparison) {
  // Where a parameter has no gradient, the recorded one is the parameter itself.
  const std::string gradient = "grad.";
  for (const auto& name : recorded.names()) {
    if (name.rfind(gradient, 0) == 0 && without_gradient.count(name.substr(gradient.size()))) continue;
    const auto found = computed.find(name);
    if (found == computed.end())
      comparison.wrong(name + " is recorded, but was not computed");
    else if (!floors.contains(name))
      comparison.wrong(name + " has no recorded noise floor");
    else
      comparison.compare(name, found->second, doubles_of(recorded.tensor(name).floats()),
                         tolerance_of(floors.at(name)));
  }
}

void compare_curve(const ModelOfCase::Curve& computed, const Json& curve, Comparison& comparison) {
  compare_steps("loss", computed.loss, curve, comparison);
  compare_steps("grad_norm", computed.grad_norm, curve, comparison);
  for (const auto& [name, values] : computed.metrics)
    if (curve.contains(name)) compare_steps(name, values, curve, comparison);
  if (!curve.contains("loss_of_first_batch_after")) return;
  const auto after = curve.at("loss_of_first_batch_after").get<double>();
  const auto floor = curve.at("noise_floor").value("loss_of_first_batch_after", 0.0);
  comparison.compare("loss_of_first_batch_after", computed.loss_of_first_batch_after, after,
                     std::max(8 * floor, 2e-6 * std::abs(after)));
}

}  // namespace tessera::golden
