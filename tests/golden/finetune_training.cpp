#include <algorithm>
#include <string>

#include "framework/base/error.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "tests/golden/finetune_case.h"
#include "tests/golden/recorded_floors.h"

namespace tessera::golden {
namespace {

using FinetuneJson = nlohmann::json;

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
    options.emplace(text("training_config.trainable_parameters[", options.size(), "]"), pattern_of(row.name));
  }
  return options;
}

/// What Transformers does without a recipe's word: the input embedding's row of pad_token_id has no gradient.
CaseOptions with_padding(const FinetuneCase& one, CaseOptions options) {
  const auto config = FinetuneJson::parse(read_file(one.base / "hf/config.json"));
  options.emplace("model_config.embedding_padding_token", config.value("pad_token_id", FinetuneJson()));
  return options;
}

/// The options that every judgement of a case has.
CaseOptions options_of(const FinetuneCase& one, CaseOptions options) {
  if (one.facts.at("group") == "frozen") options.merge(trained_options(one));
  return with_padding(one, std::move(options));
}

std::string in_words(std::size_t tensors, const ModelOfCase::Curve& curve, const char* more) {
  return text(tensors, " tensors of the first step, ", curve.loss.size(), " steps", more);
}

std::string judge_training(const FinetuneCase& one, const CaseOptions& options, Comparison& comparison) {
  const auto steps = one.curve("curve.json");
  const auto& floors = one.facts.at("noise_floor");
  ModelOfCase model(one.files(), one.mappings, steps, options_of(one, options));
  compare_with_floors(model.first_step(), one.tensors("expected.safetensors"), floors.at("expected"), {}, comparison);
  const auto tensors = comparison.compared();
  const auto computed = model.train();
  compare_curve(computed, steps, comparison);
  compare_with_floors(model.trained_weights(), one.tensors("final.safetensors"), floors.at("final"), {}, comparison);
  return in_words(tensors, computed, ", final weights");
}

std::string judge_mean_of_means(const FinetuneCase& one, const CaseOptions& options, Comparison& comparison) {
  const auto steps = one.curve("curve_mean_of_means.json");
  ModelOfCase model(one.files(), one.mappings, steps, options_of(one, options));
  compare_with_floors(model.first_step(), one.tensors("expected_mean_of_means.safetensors"),
                      one.facts.at("noise_floor_mean_of_means"), {}, comparison);
  const auto tensors = comparison.compared();
  const auto computed = model.train();
  compare_curve(computed, steps, comparison);
  return in_words(tensors, computed, "");
}

/// The stage and preference_config of a recorded loss.
CaseOptions options_of_loss(const FinetuneCase& one, const FinetuneJson& loss) {
  const auto type = loss.at("loss_type").get<std::string>();
  const bool refers = type != "simpo" && type != "orpo";
  const std::string stage = refers ? "dpo" : type, group = "preference_config.";
  CaseOptions options = {{"training_config.stage", stage}, {group + stage + "_beta", loss.at("beta")}};
  if (refers) options[group + "dpo_loss_type"] = type;
  if (loss.contains("label_smoothing")) options[group + stage + "_label_smoothing"] = loss.at("label_smoothing");
  for (const char* name : {"pref_ftx", "gamma_beta_ratio"})
    if (loss.contains(name)) options[group + name] = loss.at(name);
  if (refers && one.has("policy")) options[group + "ref_model"] = (one.base / "hf").string();
  return options_of(one, options);
}

std::string judge_losses(const FinetuneCase& one, Comparison& comparison) {
  const auto curves = one.json("curves.json");
  Values computed;
  for (const auto& loss : one.facts.at("losses")) {
    const auto name = loss.at("name").get<std::string>();
    ModelOfCase model(one.files(), one.mappings, curves, options_of_loss(one, loss));
    for (auto& [tensor, values] : model.first_pairs())
      computed[tensor.ends_with("_logps") ? tensor : name + "." + tensor] = values;
  }
  compare_with_floors(computed, one.tensors("expected.safetensors"), one.facts.at("noise_floor").at("expected"), {},
                      comparison);
  return text(comparison.compared(), " tensors of the first step of ", one.facts.at("losses").size(), " losses");
}

std::string judge_preference_curve(const FinetuneCase& one, const std::string& name, Comparison& comparison) {
  auto all = one.json("curves.json");
  auto steps = all.at("curves").at(name);
  steps["hyper_parameters"] = all.at("hyper_parameters");
  const auto& losses = one.facts.at("losses");
  const auto loss = std::find_if(losses.begin(), losses.end(), [&](const auto& l) { return l.at("name") == name; });
  if (loss == losses.end()) throw ConfigError(text("curves.json has ", name, ", which finetune.json does not list"));
  ModelOfCase model(one.files(), one.mappings, steps, options_of_loss(one, *loss));
  const auto computed = model.train();
  compare_curve(computed, steps, comparison);
  if (one.facts.at("final_of") != name) return text(computed.loss.size(), " steps");
  compare_with_floors(model.trained_weights(), one.tensors("final.safetensors"),
                      one.facts.at("noise_floor").at("final"), {}, comparison);
  return text(computed.loss.size(), " steps, final weights");
}

std::string judge_rewards(const FinetuneCase& one, Comparison& comparison) {
  const auto steps = one.curve("curve.json");
  const auto& floors = one.facts.at("noise_floor");
  const auto options = options_of(one, {{"training_config.stage", "rm"}, {"model_config.score_head", true}});
  ModelOfCase model(one.files(), one.mappings, steps, options);
  compare_with_floors(model.first_pairs(), one.tensors("expected.safetensors"), floors.at("expected"), {}, comparison);
  const auto tensors = comparison.compared();
  auto computed = model.train();
  computed.metrics["accuracy"] = computed.metrics.at("rewards/accuracies");
  compare_curve(computed, steps, comparison);
  compare_with_floors(model.trained_weights(), one.tensors("final.safetensors"), floors.at("final"), {}, comparison);
  return in_words(tensors, computed, ", final weights");
}

}  // namespace

std::vector<Judgement> judgements_of_samples(const FinetuneCase& one) {
  const auto with = [](bool per_token) { return CaseOptions{{"training_config.calculate_per_token_loss", per_token}}; };
  std::vector<Judgement> all;
  all.emplace_back("", [&one, with](auto& comparison) { return judge_training(one, with(true), comparison); });
  if (one.has("curve_mean_of_means.json"))
    all.emplace_back("mean_of_means",
                     [&one, with](auto& comparison) { return judge_mean_of_means(one, with(false), comparison); });
  return all;
}

std::vector<Judgement> judgements_of_pairs(const FinetuneCase& one) {
  if (!one.has("curves.json")) return {{"", [&one](auto& comparison) { return judge_rewards(one, comparison); }}};
  std::vector<Judgement> all = {{"", [&one](auto& comparison) { return judge_losses(one, comparison); }}};
  const auto curves = one.json("curves.json");
  for (const auto& [name, curve] : curves.at("curves").items())
    all.emplace_back(name, [&one, loss = std::string(name)](auto& comparison) {
      return judge_preference_curve(one, loss, comparison);
    });
  return all;
}

}  // namespace tessera::golden
