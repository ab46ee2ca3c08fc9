#pragma once

#include <string>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// The shapes in which recipes are kept as YAML.
enum class RecipeForm {
  none,           ///< nothing that is known; read as flat, which tells what is wrong
  flat,           ///< our own: groups named training_config, model_config, ...
  core_ms,        ///< the same with words that only MindSpeed-Core-MS has: its defaults hold
  nested,         ///< MindSpeed-Core-MS's train_config, accelerate_config, model_config.llm
  br_master,      ///< the --yaml-cfg file of MindSpeed-Core-MS's branch br_master
  megatron_yaml,  ///< the --yaml-cfg file of Megatron-LM: language_model, model_parallel, the rest beside them
  model_args      ///< MODEL_ARGS of Megatron-LM's functional tests: flags, not a recipe
};

/// What `tree` is, told by its keys.
RecipeForm form_of(const options::Value& tree, const options::Mappings& mappings);
/// "a nested recipe of MindSpeed-Core-MS".
std::string words_for(RecipeForm form);

/// `tree`, whatever its form, as a tree of our groups; each value keeps its place in the user's file. Of arguments in
/// YAML the flags tell what became of each. What is wrong or left out goes to `report`, also that model_args is no
/// recipe.
///
/// What --set says may be laid on `tree` before, in its own form or in ours, or on the result.
Conversion read_any(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                    options::Report& report);

}  // namespace tessera::flags
