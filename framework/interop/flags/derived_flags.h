#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/value.h"

namespace tessera::flags {

/// Options and values that depend on a flag together with other flags: rows of mappings/flags/ with `derived: RULE`.
/// `value` is the flag's value, empty for a bare flag; `recipe` has the options set by all other flags, and `given` is
/// all flags as they were given.
///
///     shared_experts       `value` x hidden size of an expert is the hidden size of the shared expert
///     first_dense_layers   the first `value` layers have no experts; -1 and 0: all layers may have experts
///     experts_over_tensor  each tensor-parallel rank has whole experts: the expert-tensor-parallel size is 1, and the
///                          expert-parallel size is multiplied by the tensor-parallel size
///     sequence_loss        adds the sequence-wise load-balancing loss to a router without another one
///     lora_rank            also alpha, which is twice the rank unless it is given
///     lora_targets         "all" or names with commas
///     modules_to_save      names with commas
///     longrope_short, longrope_long   numbers with commas
///     freeze_layers        only with the type of fine-tuning that freezes layers, as freeze_modules and freeze_extra
///     pref_loss            orpo and simpo are stages, the others losses of stage dpo
///     simpo_gamma          `value` / beta is the ratio of both
///     val_size             the fraction of the samples that is the validation split
///     factory_dataset      the files that dataset_info.json names, and how they are read; without it token files
///     torchtune_model      a class of torchtune whose name begins with lora_ or qlora_ has adapters
///     torchtune_targets    names of attention's modules; torchtune_mlp and torchtune_output add those of other layers
///     torchtune_dataset    the last word of a class of torchtune names the token files
///     steps_per_epoch      `value` x epochs is the number of steps
///     epochs               a whole number of passes over the data, unless a number of steps is given
///     max_steps            a number of steps instead of one of passes
///     warmup_ratio         a fraction of the steps, unless the schedule has no warm-up; warmup_steps is their number
///     tower_stages         layers of a vision tower and of the text model on each pipeline stage (tower_stages.h)
///     mllm_files           files of records with images; without files for validation nothing is evaluated
///     text_activation      an activation function, with a gate if gated_linear_unit is true
///     merged_width         must be the tower's width times the patches that are merged
///
/// The value of an option whose name ends with "[]" is a list with commas; "null" is null. An option without a name is
/// a note for the user. Throws ConfigError with the reason and advice if the flag cannot be expressed; BugError for an
/// unknown rule. Source: MindSpeed-LLM, core/transformer/{transformer_block,moe/moe_layer,moe/router}.py;
/// LLaMA-Factory, hparams/; torchtune, recipes/.
std::vector<std::pair<std::string, std::string>> derived_settings(const std::string& rule, const std::string& value,
                                                                  const options::Value& recipe,
                                                                  const std::vector<ConvertedFlag>& given = {});

/// A description of a rule, for docs/flags.md.
std::string describe_rule(const std::string& rule);

/// The words between the commas of a list, without spaces around them and without empty ones.
std::vector<std::string> split_at_commas(const std::string& words);

}  // namespace tessera::flags
