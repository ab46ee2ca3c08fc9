#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/golden/case.h"

namespace tessera::golden {

/// Whether `folder` has command lines of Megatron-LM and the namespaces they end in: defaults.json beside
/// launch_scripts.jsonl or model_args_yaml.jsonl.
bool is_command_lines(const std::filesystem::path& folder);

/// Each line of these files is a case. Its command line becomes a recipe by mappings/flags/megatron.yaml; what
/// `megatron_arguments` makes of that must agree with what the real parser and its validation made of the command line,
/// in each argument that the table does not ignore. Where the real one refused, so must we, for the same rule. A
/// command line with a flag that the table refuses or that leads to what is not built is not supported.
std::vector<CaseResult> run_command_line_cases(const std::filesystem::path& folder);

/// "arguments: 180 of 411 agree entirely (43.8 %), 12 refused as there; not supported: ...": one line for each cause.
std::vector<std::string> shares_of_command_lines(const std::vector<CaseResult>& results);

}  // namespace tessera::golden
