#include "tests/golden/models.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/files.h"
#include "framework/options/same.h"
#include "tests/golden/arguments.h"
#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"
#include "tests/golden/recorded_floors.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json json_of(const fs::path& file) { return Json::parse(read_file(file)); }

/// One folder while its cases are judged.
class ModelCases {
 public:
  explicit ModelCases(fs::path folder) : folder_(std::move(folder)) {}

  std::vector<CaseResult> run() {
    try {
      hugging_face::read_hugging_face_config(folder_ / "hf/config.json", mappings_);
      if (fs::exists(folder_ / "arguments.json"))
        read_arguments(json_of(folder_ / "arguments.json"), [](const std::string&, const options::Value&) {});
    } catch (const ConfigError& error) {  // what the case asks for is not built
      add("", CaseResult::Verdict::not_supported, error.what());
      return std::move(results_);
    }
    judge("", [this](Comparison& comparison) { return everything(comparison); });
    for (const auto& name : curves()) judge(name, [&](Comparison& comparison) { return curve(name, comparison); });
    if (fs::exists(folder_ / "hf/config.transformers4.json"))
      judge("config.transformers4", [this](Comparison& comparison) { return other_spelling(comparison); });
    if (fs::exists(folder_ / "hf_bfloat16_sharded"))
      judge("hf_bfloat16_sharded", [this](Comparison& comparison) { return rounded_shards(comparison); });
    if (fs::exists(folder_ / "curve_bf16.json"))
      judge("curve_bf16", [this](Comparison& comparison) { return bfloat16_curve(comparison); });
    return std::move(results_);
  }

 private:
  template <class Judge>
  void judge(const std::string& name, Judge judge_it) {
    Comparison comparison;
    try {
      const std::string what = judge_it(comparison);
      const auto verdict = comparison.good() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed;
      add(name, verdict,
          comparison.compared() == 0 && comparison.good() ? what
                                                          : text(what, what.empty() ? "" : "; ", comparison.summary()));
    } catch (const std::exception& error) {
      add(name, CaseResult::Verdict::failed, error.what());
    }
  }
  void add(const std::string& name, CaseResult::Verdict verdict, std::string summary) {
    std::replace(summary.begin(), summary.end(), '\n', ' ');
    results_.push_back({name, verdict, std::move(summary)});
  }

  std::string everything(Comparison& comparison) const {
    const auto facts = json_of(folder_ / "case.json"), steps = json_of(folder_ / "curve.json");
    const auto& floors = facts.at("noise_floor");
    ModelOfCase model(CaseFiles::of_model(folder_), mappings_, steps);
    compare_with_floors(model.first_batch(), checkpoint::SafetensorsReader(folder_ / "expected.safetensors"),
                        floors.at("expected"), model.without_gradient(), comparison);
    const auto tensors = comparison.compared();
    const auto computed = model.train();
    compare_curve(computed, steps, comparison);
    compare_with_floors(model.weights(), checkpoint::SafetensorsReader(folder_ / "final.safetensors"),
                        floors.at("final"), {}, comparison);
    return text(tensors, " tensors of the first batch, ", computed.loss.size(), " steps, final weights");
  }

  /// The names of the curves of the same steps with one thing changed.
  std::vector<std::string> curves() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const auto name = entry.path().stem().string();
      if (name.starts_with("curve_") && name != "curve_bf16") names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  /// The options by which a curve differs: frozen tensors, and what a step minimises.
  CaseOptions options_of(const Json& steps) const {
    CaseOptions options;
    const auto reduction = steps.value("loss_reduction", "");
    if (reduction == "token") options.emplace("training_config.calculate_per_token_loss", true);
    if (reduction == "sample") options.emplace("training_config.calculate_per_sample_loss", true);
    std::size_t patterns = 0;
    const auto list = steps.value("frozen", std::vector<std::string>());
    const std::set<std::string> frozen(list.begin(), list.end());
    const hugging_face::HuggingFaceModel theirs(folder_ / "hf", mappings_);
    for (const auto& row : theirs.table().rows()) {
      const auto count = std::ranges::count_if(row.from, [&](const auto& name) { return frozen.contains(name); });
      if (count == 0) continue;
      if (count != std::ssize(row.from)) throw ConfigError(text("only a part of ", row.name, " is frozen"));
      options.emplace(text("training_config.frozen_parameters[", patterns++, "]"), pattern_of(row.name));
    }
    return options;
  }

  std::string curve(const std::string& name, Comparison& comparison) const {
    const auto steps = json_of(folder_ / (name + ".json"));
    ModelOfCase model(CaseFiles::of_model(folder_), mappings_, steps, options_of(steps));
    const auto computed = model.train();
    compare_curve(computed, steps, comparison);
    for (const auto& frozen : steps.value("frozen", std::vector<std::string>()))
      if (model.largest_move(frozen) != 0) comparison.wrong(text(frozen, " is frozen, but it moved"));
    return text(computed.loss.size(), " steps of ", steps.at("micro_batch_size"), " sample a micro batch");
  }

  /// The same steps in bfloat16, near those of float64: within four times the worst step of the recorded programs.
  std::string bfloat16_curve(Comparison& comparison) const {
    auto steps = json_of(folder_ / "curve_bf16.json");
    const auto exact = json_of(folder_ / "curve.json");
    steps["bf16"] = true;
    ModelOfCase model(CaseFiles::of_model(folder_), mappings_, steps);
    const auto computed = model.train();
    const auto& noise = steps.at("max_abs_deviation_from_float64");
    const auto compare = [&](const std::string& name, const std::vector<double>& values) {
      const auto recorded = exact.at(name).get<std::vector<double>>();
      const auto floors = noise.at(name).get<std::vector<double>>();
      if (values.size() != recorded.size())
        return comparison.wrong(text(values.size(), " steps; ", recorded.size(), " are recorded"));
      const auto tolerance = 4 * *std::max_element(floors.begin(), floors.end());
      for (std::size_t k = 0; k < recorded.size(); ++k)
        comparison.compare(text(name, " of step ", k), values[k], recorded[k], tolerance);
    };
    compare("loss", computed.loss);
    compare("grad_norm", computed.grad_norm);
    if (computed.loss == exact.at("loss").get<std::vector<double>>()) comparison.wrong("nothing was rounded");
    return text(computed.loss.size(), " steps in bfloat16");
  }

  /// model_config must not depend on the version that wrote config.json.
  std::string other_spelling(Comparison& comparison) const {
    const auto five = hugging_face::read_hugging_face_config(folder_ / "hf/config.json", mappings_).model_config;
    const auto four =
        hugging_face::read_hugging_face_config(folder_ / "hf/config.transformers4.json", mappings_).model_config;
    if (five.fields.size() != four.fields.size()) comparison.wrong("config.json and this give different keys");
    for (const auto& [key, value] : five.fields) {
      const auto* other = four.find(key);
      if (other == nullptr || !options::same(*other, value))
        comparison.wrong(text(key, " is another than config.json gives"));
    }
    return text(five.fields.size(), " options as from config.json");
  }

  /// The same weights in bfloat16 and several files: what is read are the rounded weights, exactly.
  std::string rounded_shards(Comparison& comparison) const {
    const hugging_face::HuggingFaceModel rounded(folder_ / "hf_bfloat16_sharded", mappings_),
        exact(folder_ / "hf", mappings_);
    for (const auto& name : exact.names()) {
      std::vector<float> x(static_cast<std::size_t>(exact.shape(name).elements())), y = x;
      exact.read(name, x);
      rounded.read(name, y);
      for (auto& value : x) value = static_cast<float>(bfloat16(value));
      comparison.compare(name, doubles_of(y), doubles_of(x), 0);
    }
    return text(comparison.compared(), " tensors are those of hf, rounded");
  }

  fs::path folder_;
  options::Mappings mappings_;
  std::vector<CaseResult> results_;
};

}  // namespace
}  // namespace golden

std::vector<CaseResult> run_model_cases(const std::filesystem::path& folder) {
  return golden::ModelCases(folder).run();
}

}  // namespace tessera
