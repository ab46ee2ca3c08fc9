#include "tests/golden/operators.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/kernels/type_conversion.h"
#include "tests/golden/comparison.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Verdict = CaseResult::Verdict;

OperatorInputs read_inputs(const checkpoint::SafetensorsReader& file, const Json& attributes) {
  OperatorInputs inputs{attributes, {}, {}, {}};
  kernels::Threads threads(1);
  for (const auto& name : file.names()) {
    const Tensor tensor = file.tensor(name);
    const auto dims = tensor.shape().dims();
    inputs.shapes[name].assign(dims.begin(), dims.end());
    if (tensor.dtype() == DType::float32 || size_of(tensor.dtype()) == 2) {
      auto& values = inputs.floats[name];
      values.resize(static_cast<std::size_t>(tensor.elements()));
      kernels::widen(threads, tensor, values);
    } else if (tensor.dtype() == DType::int64) {
      const auto values = tensor.as<const std::int64_t>();
      inputs.integers[name].assign(values.begin(), values.end());
    } else if (tensor.dtype() == DType::uint8) {
      const auto values = tensor.as<const std::uint8_t>();
      inputs.integers[name].assign(values.begin(), values.end());
    } else {
      throw NotBuilt{text(name, " has elements of type ", name_of(tensor.dtype()))};
    }
  }
  return inputs;
}

/// How long the pieces are that are judged by their own largest value.
std::size_t piece_of(const std::string& compare, std::size_t elements, std::int64_t width) {
  if (compare == "tensor") return std::max<std::size_t>(1, elements);
  if (compare == "row") return static_cast<std::size_t>(std::max<std::int64_t>(1, width));
  if (compare == "element") return 1;
  throw NotBuilt{"comparison by " + compare};
}

/// What has no influence has exactly no gradient: the logits of ignored labels, and keys that no query sees. (Other
/// zeros, such as the gradient of a query that sees one key, are differences of equal numbers.)
void compare_zeros(const std::string& name, std::span<const double> x, const checkpoint::SafetensorsReader& file,
                   Comparison& comparison) {
  if (name != "grad.logits" && name != "grad.k" && name != "grad.v") return;
  const Tensor telling = file.tensor(name == "grad.k" ? "grad.v" : name);
  const auto recorded = telling.as<const float>();
  const auto width = static_cast<std::size_t>(telling.shape().width());
  for (std::size_t i = 0; i + width <= std::min(recorded.size(), x.size()); i += width) {
    const auto none = [](auto value) { return value == 0; };
    const auto row = recorded.subspan(i, width);
    const auto mine = x.subspan(i, width);
    if (std::all_of(row.begin(), row.end(), none) && !std::all_of(mine.begin(), mine.end(), none)) {
      return comparison.wrong(text(name, " is not exactly zero in row ", i / width));
    }
  }
}

void compare_tensor(const std::string& name, std::span<const double> x, const Tensor& recorded,
                    const std::string& compare, double tolerance, Comparison& comparison) {
  const auto floats = recorded.as<const float>();
  const std::vector<double> expected(floats.begin(), floats.end());
  if (x.size() != expected.size()) {
    return comparison.wrong(text(name, " has ", x.size(), " elements; ", expected.size(), " are recorded"));
  }
  const auto piece = piece_of(compare, expected.size(), recorded.shape().width());
  const auto all = std::span<const double>(expected);
  for (std::size_t i = 0; i < expected.size(); i += piece) {
    const auto part = all.subspan(i, piece);
    comparison.compare(piece == expected.size() ? name : text(name, "[", i / piece, "]"), x.subspan(i, piece), part,
                       tolerance * largest(part));
  }
}

/// The rule of a precision: so many times the noise floor that `key` names, and never below `least`.
struct Rule {
  DType type = DType::float32;
  std::string key = "float32";
  double factor = 8, least = 1e-6;
};

Rule rule_of(const Json& json) {
  Rule rule;
  rule.type = dtype_named(json.value("precision", "float32"));
  if (rule.type == DType::float32) return rule;
  rule.key = json.at("precision").get<std::string>();
  const auto& floors = json.at("noise_floor");
  if (!floors.contains(rule.key)) rule.key = "float32_inside";  // of two ways, the one that is ours
  rule.factor = 3;
  rule.least = rule.type == DType::bfloat16 ? 7.8e-3 : 9.8e-4;
  return rule;
}

/// What operations leave in the 16-bit type is rounded to it; losses and log-sum-exps stay fp32.
void round_results(DType type, OperatorResults& results) {
  if (type == DType::float32) return;
  kernels::Threads threads(1);
  for (auto& [name, values] : results) {
    if (name != "out.y" && name.rfind("grad.", 0) != 0) continue;
    std::vector<float> floats(values.begin(), values.end());
    kernels::round_to(threads, type, floats);
    values.assign(floats.begin(), floats.end());
  }
}

/// Compares every recorded output and gradient, and returns how many there are.
int compare_results(const fs::path& json_file, const Json& json, Comparison& comparison) {
  const checkpoint::SafetensorsReader file(fs::path(json_file).replace_extension(".safetensors"));
  const auto name = json.at("name").get<std::string>(), compare = json.at("compare").get<std::string>();
  const auto rule = rule_of(json);
  auto computed = run_operator(name, read_inputs(file, json.at("attributes")));
  round_results(rule.type, computed);
  const auto& floors = json.at("noise_floor").at(rule.key);
  int tensors = 0;
  for (const auto& tensor : file.names()) {
    if (tensor.rfind("out.", 0) != 0 && tensor.rfind("grad.", 0) != 0) continue;
    const auto found = computed.find(tensor);
    if (found == computed.end()) {
      comparison.wrong(tensor + " is recorded, but was not computed");
    } else if (!floors.contains(tensor)) {
      comparison.wrong(tensor + " has no recorded noise floor");
    } else {
      const double floor = floors.at(tensor).at("max_rel_deviation");
      compare_tensor(tensor, found->second, file.tensor(tensor), compare, std::max(rule.factor * floor, rule.least),
                     comparison);
      compare_zeros(tensor, found->second, file, comparison);
      ++tensors;
    }
  }
  return tensors;
}

}  // namespace

const std::vector<float>& OperatorInputs::at(const std::string& name) const {
  const auto found = floats.find(name);
  if (found == floats.end()) throw ConfigError(text("operator case: no float tensor ", name, " in its file"));
  return found->second;
}

const std::vector<std::int64_t>& OperatorInputs::shape(const std::string& name) const {
  const auto found = shapes.find(name);
  if (found == shapes.end()) throw ConfigError(text("operator case: no tensor ", name, " in its file"));
  return found->second;
}

}  // namespace golden

CaseResult run_operator_case(const std::filesystem::path& json_file) {
  using golden::Verdict;
  CaseResult result{json_file.stem().string(), Verdict::failed, ""};
  try {
    const auto json = golden::Json::parse(read_file(json_file));
    golden::Comparison comparison;
    const auto tensors = golden::compare_results(json_file, json, comparison);
    result.verdict = comparison.good() && tensors > 0 ? Verdict::passed : Verdict::failed;
    result.summary =
        tensors == 0 && comparison.good() ? "nothing is recorded" : text(tensors, " tensors; ", comparison.summary());
  } catch (const golden::NotBuilt& missing) {
    result.verdict = Verdict::not_supported;
    result.summary = missing.what + " is not built";
  } catch (const std::exception& error) {
    result.summary = error.what();
    std::replace(result.summary.begin(), result.summary.end(), '\n', ' ');
  }
  return result;
}

std::vector<CaseResult> run_operator_cases(const std::filesystem::path& folder) {
  std::vector<CaseResult> results;
  for (const auto& entry : list_folder(folder)) {
    if (entry.extension() != ".json" ||
        !std::filesystem::exists(std::filesystem::path(entry).replace_extension(".safetensors")))
      continue;
    results.push_back(run_operator_case(entry));
  }
  return results;
}

}  // namespace tessera
