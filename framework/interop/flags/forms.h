#pragma once

#include <string>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// The forms of recipes in YAML.
enum class RecipeForm {
  none,       ///< unknown; read as flat, which reports the mistakes
  flat,       ///< our own: groups named training_config, model_config, ...
  core_ms,    ///< flat, with words that only MindSpeed-Core-MS has: its defaults apply
  nested,     ///< MindSpeed-Core-MS's train_config, accelerate_config, model_config.llm
  br_master,  ///< the --yaml-cfg file of MindSpeed-Core-MS's branch br_master
  /// The --yaml-cfg file of Megatron-LM: groups language_model and model_parallel, other keys at the top level.
  megatron_yaml,
  arguments,   ///< a configuration of another program whose keys are its flags: LLaMA-Factory, torchtune
  model_args,  ///< MODEL_ARGS of Megatron-LM's functional tests: flags, not a recipe
  other        ///< of a program that is known, but not read (mappings/recipes/other_programs.yaml)
};

/// The form of `tree`, detected by its keys.
RecipeForm form_of(const options::Value& tree, const options::Mappings& mappings);
/// For the form `other`: the program, "LLaMA-Factory"; empty for other forms.
std::string other_program_of(const options::Value& tree, const options::Mappings& mappings);
/// Reports that `tree` is of no form that is read, and which forms are.
void refuse_form(const options::Value& tree, const options::Mappings& mappings, options::Report& report);

/// Converts `tree`, of any form, to a tree of our groups; each value keeps its position in the user's file. For
/// arguments in YAML, the result of each is in `flags`. Mistakes and dropped keys go to `report`, also if the form is
/// model_args, which is not a recipe.
///
/// Values of --set may be applied to `tree` before, in its own form or in ours, or to the result.
Conversion read_any(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                    options::Report& report);

}  // namespace tessera::flags
