#include "framework/interop/flags/forms.h"

#include <algorithm>
#include <iterator>

#include "framework/base/error.h"
#include "framework/interop/flags/nested_recipe.h"
#include "framework/interop/flags/yaml_arguments.h"

namespace tessera::flags {
namespace {

const char* const groups[] = {"training_config",  "model_config",   "parallel_config",
                              "optimizer_config", "dataset_config", "moe_config",
                              "vision_config",    "lora_config",    "preference_config"};

}  // namespace

RecipeForm form_of(const options::Value& tree, const options::Mappings& mappings) {
  if (tree.find("MODEL_ARGS")) return RecipeForm::model_args;
  if (tree.find("train_config") || tree.find("accelerate_config") || tree.at("model_config.llm"))
    return RecipeForm::nested;
  // Most recipes have no other keys at the top level; the table of programs is large.
  const bool all_ours = std::all_of(tree.fields.begin(), tree.fields.end(), [](const auto& field) {
    return std::find(std::begin(groups), std::end(groups), field.name) != std::end(groups);
  });
  const auto program = all_ours && !tree.fields.empty() ? "" : program_of_yaml_arguments(tree, mappings);
  if (program == "br_master") return RecipeForm::br_master;
  if (program == "megatron_yaml") return RecipeForm::megatron_yaml;
  for (const auto* group : groups)
    if (tree.find(group)) return mark_of_core_ms(tree, mappings).empty() ? RecipeForm::flat : RecipeForm::core_ms;
  if (!program.empty()) return RecipeForm::arguments;
  return other_program_of(tree, mappings).empty() ? RecipeForm::none : RecipeForm::other;
}

std::string other_program_of(const options::Value& tree, const options::Mappings& mappings) {
  const auto table = mappings.table("recipes/other_programs.yaml");
  for (const auto& program : table.find("programs")->items)
    if (has_signs(tree, program)) return program.find("name")->scalar;
  return "";
}

void refuse_form(const options::Value& tree, const options::Mappings& mappings, options::Report& report) {
  const auto program = other_program_of(tree, mappings);
  const std::string advice =
      "give a recipe (groups model_config, training_config, ...), a nested or flat recipe of MindSpeed-Core-MS, a "
      "--yaml-cfg or MODEL_ARGS file of Megatron-LM, a configuration of LLaMA-Factory or torchtune, or the launch "
      "script";
  std::string what = text("this is a configuration of ", program, ", which is not read");
  if (program.empty() && tree.fields.empty())
    what = "this file has no options";
  else if (program.empty())
    what = text("'", tree.fields[0].name, "' is no group of a recipe, nor is any other key of this file");
  report.problem(program.empty() && !tree.fields.empty() ? tree.fields[0].value.origin : tree.origin, "", what, advice);
  report.incomplete();
}

Conversion read_any(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                    options::Report& report) {
  const auto form = form_of(tree, mappings);
  if (form == RecipeForm::nested) return {read_nested(tree, mappings, facts, report)};
  if (form == RecipeForm::core_ms) return {read_core_ms(tree, mappings, facts, report)};
  if (form == RecipeForm::br_master || form == RecipeForm::megatron_yaml || form == RecipeForm::arguments)
    return read_yaml_arguments(tree, program_of_yaml_arguments(tree, mappings), mappings, facts, report);
  if (form == RecipeForm::model_args)
    report.problem(tree.origin, "MODEL_ARGS", "these are flags of a launch, not a recipe",
                   "`tessera convert` makes a recipe of them");
  return {tree};
}

}  // namespace tessera::flags
