#pragma once

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// A --yaml-cfg file of Megatron-LM or of MindSpeed-Core-MS's branch br_master: their arguments by name, those of a
/// layer in the group language_model, those of the cut in model_parallel, the rest at the top. Each is taken for the
/// flag that gives it, so their defaults hold and what became of each is in the flags. true of a bare flag gives it,
/// false of one that switches off; null and empty text say nothing. Groups of ours that stand beside are laid on top.
///
/// mappings/recipes/arguments.yaml has, for each program, the flag table, which names stand in which group, and
/// `marks`: names that no other program knows; `names`, a table of names of which no flag speaks; and `overruled`, what
/// their programs set themselves.
///
/// Problems: a name that nobody knows, with the one it is most like; a name in the wrong group; what is no value of its
/// flag. Sources: megatron/training/yaml_arguments.py of Megatron-LM, mindspeed_ms/training/yaml_arguments.py.
Conversion read_yaml_arguments(const options::Value& tree, const std::string& program,
                               const options::Mappings& mappings, const options::Facts& facts, options::Report& report);

/// Whose file it is: a program of that table; empty when it has no groups of such a file.
std::string program_of_yaml_arguments(const options::Value& tree, const options::Mappings& mappings);

}  // namespace tessera::flags
