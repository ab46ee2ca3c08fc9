#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/golden/case.h"

namespace tessera {
namespace golden {

/// A recorded operator: its attributes, and its tensors by name.
struct OperatorInputs {
  const nlohmann::json& attributes;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, std::vector<std::int64_t>> shapes;

  const std::vector<float>& at(const std::string& name) const;
  const std::vector<std::int64_t>& shape(const std::string& name) const;
};

/// All outputs and gradients that the kernels compute for it, by their recorded names.
using OperatorResults = std::map<std::string, std::vector<double>>;

/// Throws NotBuilt for what is not.
OperatorResults run_operator(const std::string& name, const OperatorInputs& inputs);

/// Thrown for an operator or an attribute that is not built; the message names it.
struct NotBuilt {
  std::string what;
};

}  // namespace golden

/// Judges one operator: `json_file` (name, precision, attributes, compare, noise_floor) with NAME.safetensors beside it
/// (in.*, cotangent.*, out.*, grad.*). Every recorded output and gradient must be computed and near: within 8 x the
/// noise floor of float32 and never below 1e-6 (in 16 bits: 3 x, and never below a unit in the last place), relative to
/// the largest value of the tensor, of each row or to each element, as `compare` says. What has no influence must have
/// exactly no gradient.
CaseResult run_operator_case(const std::filesystem::path& json_file);

/// All such cases of a folder, by name.
std::vector<CaseResult> run_operator_cases(const std::filesystem::path& folder);

}  // namespace tessera
