#pragma once

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// Converts a --yaml-cfg file of Megatron-LM or of MindSpeed-Core-MS's branch br_master: arguments by name, those of a
/// layer in the group language_model, those of the parallel layout in model_parallel, the others at the top level. Or
/// converts a configuration of LLaMA-Factory or torchtune, whose keys are flags too; keys in maps are joined by dots.
/// Each argument is converted as the flag that sets it, so the program's defaults apply, and the conversion of each is
/// in `flags`. true gives a bare flag, false gives a flag that switches off; null and empty text mean not given. Our
/// own groups in the file override the result.
///
/// mappings/recipes/arguments.yaml has, for each program, the flag table, the names in each group, and `marks`: names
/// that no other program has; or `keys` and `any`, by which a file without groups is detected; `names`, a table of
/// names without a flag; and `overruled`, arguments that the program sets itself.
///
/// Problems: an unknown name, with the closest known one; a name in the wrong group; a value that the flag does not
/// accept. Sources: megatron/training/yaml_arguments.py of Megatron-LM, mindspeed_ms/training/yaml_arguments.py.
Conversion read_yaml_arguments(const options::Value& tree, const std::string& program,
                               const options::Mappings& mappings, const options::Facts& facts, options::Report& report);

/// Whether `tree` has all `keys` of `signs`, which may be paths, and, where `any` is given, one of these.
bool has_signs(const options::Value& tree, const options::Value& signs);

/// The program of such a file, a key of that table: of its groups or, in a file without groups, of its keys. Empty if
/// there is none.
std::string program_of_yaml_arguments(const options::Value& tree, const options::Mappings& mappings);

}  // namespace tessera::flags
