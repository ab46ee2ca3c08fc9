#include "framework/convert/forms.h"

#include "framework/convert/nested_recipe.h"

namespace tessera {
namespace {

const char* const groups[] = {"training_config", "model_config", "parallel_config", "optimizer_config",
                              "dataset_config",  "moe_config",   "lora_config"};

}  // namespace

RecipeForm form_of(const Value& tree, const Mappings&) {
  if (tree.find("MODEL_ARGS")) return RecipeForm::model_args;
  if (tree.find("train_config") || tree.find("accelerate_config") || tree.at("model_config.llm"))
    return RecipeForm::nested;
  if (tree.find("language_model") || tree.find("model_parallel")) return RecipeForm::megatron_yaml;
  for (const auto* group : groups)
    if (tree.find(group)) return RecipeForm::flat;
  return RecipeForm::none;
}

std::string words_for(RecipeForm form) {
  switch (form) {
    case RecipeForm::flat:
      return "a recipe";
    case RecipeForm::nested:
      return "a nested recipe of MindSpeed-Core-MS";
    case RecipeForm::br_master:
      return "a --yaml-cfg file of MindSpeed-Core-MS";
    case RecipeForm::megatron_yaml:
      return "a --yaml-cfg file of Megatron-LM";
    case RecipeForm::model_args:
      return "a functional test of Megatron-LM";
    case RecipeForm::none:
      break;
  }
  return "no recipe";
}

Value read_any(const Value& tree, const Mappings& mappings, const Facts&, Report& report) {
  const auto form = form_of(tree, mappings);
  if (form == RecipeForm::nested) return read_nested(tree, mappings, report);
  return tree;
}

}  // namespace tessera
