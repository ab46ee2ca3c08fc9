#pragma once

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// Converts a --yaml-cfg file of Megatron-LM or of MindSpeed-Core-MS's branch br_master: arguments by name, those of a
/// layer in the group language_model, those of the parallel layout in model_parallel, the others at the top level. Each
/// argument is converted as the flag that sets it, so the program's defaults apply, and the conversion of each is in
/// `flags`. true gives a bare flag, false gives a flag that switches off; null and empty text mean not given. Our own
/// groups in the file override the result.
///
/// mappings/recipes/arguments.yaml has, for each program, the flag table, the names in each group, and `marks`: names
/// that no other program has; `names`, a table of names without a flag; and `overruled`, arguments that the program
/// sets itself.
///
/// Problems: an unknown name, with the closest known one; a name in the wrong group; a value that the flag does not
/// accept. Sources: megatron/training/yaml_arguments.py of Megatron-LM, mindspeed_ms/training/yaml_arguments.py.
Conversion read_yaml_arguments(const options::Value& tree, const std::string& program,
                               const options::Mappings& mappings, const options::Facts& facts, options::Report& report);

/// The program of such a file, a key of that table; empty if the file has no such groups.
std::string program_of_yaml_arguments(const options::Value& tree, const options::Mappings& mappings);

}  // namespace tessera::flags
