#include "tests/golden/finetune.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "tests/golden/comparison.h"
#include "tests/golden/model_of_case.h"
#include "tests/golden/recorded_floors.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;
using FinetuneJson = nlohmann::json;

/// One case: its facts, its files and the tables of names.
struct FinetuneCase {
  explicit FinetuneCase(const fs::path& at)
      : folder(at), facts(json("finetune.json")), base(at / facts.at("base").get<std::string>()) {}

  FinetuneJson json(const std::string& name) const { return FinetuneJson::parse(read_file(folder / name)); }
  checkpoint::SafetensorsReader tensors(const std::string& name) const {
    return checkpoint::SafetensorsReader(folder / name);
  }
  bool has(const std::string& name) const { return fs::exists(folder / name); }
  CaseFiles files() const {
    const auto own = folder / "batch.safetensors";
    return {base / "hf", fs::exists(own) ? own : base / "batch.safetensors", base / "arguments.json", facts};
  }
  /// curve.json or another one, with the case's size of a micro-batch.
  FinetuneJson curve(const std::string& name) const {
    auto steps = json(name);
    if (facts.contains("micro_batch_size")) steps["micro_batch_size"] = facts.at("micro_batch_size");
    return steps;
  }

  fs::path folder;
  FinetuneJson facts;
  fs::path base;
  options::Mappings mappings;
};

/// The text as a pattern that matches only it.
std::string quoted(const std::string& name) {
  std::string pattern;
  for (const char c : name) pattern += (c == '.' ? "\\" : "") + std::string(1, c);
  return pattern;
}

/// trainable_parameters: our tensors for which gradients are recorded.
CaseOptions trained_options(const FinetuneCase& one) {
  const auto recorded = one.tensors("expected.safetensors");
  const hugging_face::HuggingFaceModel base(one.base / "hf", one.mappings);
  CaseOptions options;
  for (const auto& row : base.table().rows()) {
    const auto trained =
        std::count_if(row.from.begin(), row.from.end(), [&](const auto& name) { return recorded.has("grad." + name); });
    if (trained == 0) continue;
    if (trained != static_cast<std::ptrdiff_t>(row.from.size()))
      throw ConfigError(text("only a part of ", row.name, " is trained"));
    options.emplace(text("training_config.trainable_parameters[", options.size(), "]"), quoted(row.name));
  }
  return options;
}

/// The first step, all steps and the trained tensors with `options`.
std::string judge_training(const FinetuneCase& one, const CaseOptions& options, Comparison& comparison) {
  const auto steps = one.curve("curve.json");
  const auto& floors = one.facts.at("noise_floor");
  ModelOfCase model(one.files(), one.mappings, steps, options);
  compare_with_floors(model.first_step(), one.tensors("expected.safetensors"), floors.at("expected"), {}, comparison);
  const auto tensors = comparison.compared();
  const auto computed = model.train();
  compare_curve(computed, steps, comparison);
  compare_with_floors(model.trained_weights(), one.tensors("final.safetensors"), floors.at("final"), {}, comparison);
  return text(tensors, " tensors of the first step, ", computed.loss.size(), " steps, final weights");
}

std::string judge_mean_of_means(const FinetuneCase& one, const CaseOptions& options, Comparison& comparison) {
  const auto steps = one.curve("curve_mean_of_means.json");
  ModelOfCase model(one.files(), one.mappings, steps, options);
  compare_with_floors(model.first_step(), one.tensors("expected_mean_of_means.safetensors"),
                      one.facts.at("noise_floor_mean_of_means"), {}, comparison);
  const auto tensors = comparison.compared();
  const auto computed = model.train();
  compare_curve(computed, steps, comparison);
  return text(tensors, " tensors of the first step, ", computed.loss.size(), " steps");
}

/// What is compared in one case, by the name under which it is reported.
using Judgement = std::pair<std::string, std::function<std::string(Comparison&)>>;

std::vector<Judgement> frozen_judgements(const FinetuneCase& one) {
  return {{"", [&one](auto& comparison) { return judge_training(one, trained_options(one), comparison); }}};
}

std::vector<Judgement> packed_judgements(const FinetuneCase& one) {
  const auto with = [](bool per_token) { return CaseOptions{{"training_config.calculate_per_token_loss", per_token}}; };
  return {
      {"", [&one, with](auto& comparison) { return judge_training(one, with(true), comparison); }},
      {"mean_of_means", [&one, with](auto& comparison) { return judge_mean_of_means(one, with(false), comparison); }}};
}

/// How the cases of each group are judged; a group that is not here is not supported.
std::vector<Judgement> judgements_of(const FinetuneCase& one) {
  const auto group = one.facts.at("group").get<std::string>();
  if (one.has("adapter")) return {};
  if (group == "frozen") return frozen_judgements(one);
  if (group == "sft") return packed_judgements(one);
  return {};
}

CaseResult result_of(const Judgement& judgement) {
  Comparison comparison;
  try {
    const auto what = judgement.second(comparison);
    const auto verdict = comparison.good() ? CaseResult::Verdict::passed : CaseResult::Verdict::failed;
    return {judgement.first, verdict, text(what, "; ", comparison.summary())};
  } catch (const std::exception& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    return {judgement.first, CaseResult::Verdict::failed, message};
  }
}

}  // namespace
}  // namespace golden

bool is_finetune_case(const std::filesystem::path& folder) { return std::filesystem::exists(folder / "finetune.json"); }

std::vector<CaseResult> run_finetune_case(const std::filesystem::path& folder) {
  const golden::FinetuneCase one(folder);
  std::vector<CaseResult> results;
  for (const auto& judgement : golden::judgements_of(one)) results.push_back(golden::result_of(judgement));
  if (results.empty())
    results.push_back({"", CaseResult::Verdict::not_supported,
                       text("no judge for group ", one.facts.at("group").get<std::string>(),
                            one.has("adapter") ? " with adapters" : "")});
  return results;
}

}  // namespace tessera
