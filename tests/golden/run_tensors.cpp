#include "tests/golden/run_tensors.h"

#include <algorithm>
#include <cmath>

#include "framework/checkpoint/safetensors.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const auto value : x) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> elements_of(const Tensor& tensor) {
  if (tensor.dtype() != DType::int64) return doubles_of(tensor);
  const auto integers = tensor.as<std::int64_t>();
  return {integers.begin(), integers.end()};
}

void compare_tensor(const std::string& name, const std::vector<double>& x, const std::vector<double>& expected,
                    const TensorTolerance& tolerance, Comparison& comparison) {
  const auto near = [&](double share) { return std::max(share * largest(expected), tolerance.absolute); };
  if (!tolerance.sixteen_bits) return comparison.compare(name, x, expected, near(tolerance.relative));
  comparison.compare(name, x, expected, near(3 * tolerance.relative));
  std::vector<double> deviation = expected;
  for (std::size_t i = 0; i < x.size() && i < deviation.size(); ++i) deviation[i] -= x[i];
  const auto allowed = std::max(tolerance.relative * norm(expected),
                                tolerance.absolute * std::sqrt(static_cast<double>(expected.size())));
  comparison.compare("norm of the deviation of " + name, norm(deviation), 0, allowed);
}

void compare_recorded(const Values& ours, const std::string& name, const std::string& theirs,
                      std::vector<double> expected, const TensorTolerance& tolerance, double factor,
                      Comparison& comparison) {
  const auto found = ours.find(name);
  if (found == ours.end()) return comparison.wrong(text(theirs, " is recorded, but was not computed"));
  for (auto& value : expected) value /= factor;
  compare_tensor(theirs, found->second, expected, tolerance, comparison);
}

}  // namespace

void compare_tensors(const Values& ours, const std::filesystem::path& file,
                     const std::function<std::string(const std::string&)>& name, const TensorTolerance& tolerance,
                     double factor, Comparison& comparison) {
  if (!std::filesystem::exists(file)) return;
  const checkpoint::SafetensorsReader recorded(file);
  for (const auto& theirs : recorded.names())
    compare_recorded(ours, name(theirs), theirs, elements_of(recorded.tensor(theirs)), tolerance, factor, comparison);
}

void compare_tensors(const Values& ours, const RecordedTensors& recorded, const TensorTolerance& tolerance,
                     double factor, Comparison& comparison) {
  for (const auto& [name, tensor] : recorded)
    compare_recorded(ours, name, name, tensor.elements, tolerance, factor, comparison);
}

double gradient_factor(const RecordedTensors& gradients, const Json& first_step) {
  const double scale = first_step.at("loss_scale_before");
  if (first_step.at("grad_norm").is_null()) return 0;
  if (scale == 1) return 1;
  double squares = 0;
  for (const auto& gradient : gradients) squares += std::pow(norm(gradient.second.elements), 2);
  return std::sqrt(squares) > std::sqrt(scale) * first_step.at("grad_norm").get<double>() ? scale : 1;
}

}  // namespace tessera::golden
