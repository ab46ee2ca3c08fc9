#pragma once

#include <string>

#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// Reads the launch of a MODEL_ARGS file of Megatron-LM's functional tests, whose text is `words`: `true` gives a bare
/// flag, `false` and an empty value omit it, "[a b]" and lists give several words; of two equal keys the second counts.
/// Mistakes go to `report`. Source: tests/functional_tests/shell_test_utils/_run_training.sh of Megatron-LM.
LaunchReading read_model_args(const std::string& words, const std::string& file, options::Report& report);

/// `words` in which each line with a flag that is given again later in the same map is replaced by an empty line: YAML
/// allows no duplicate keys, but Megatron-LM's test program does, and the last one counts. Each replacement is a note
/// in `report`.
std::string without_repeated_flags(const std::string& words, const std::string& file, options::Report& report);

/// Fills `reading.unknowns` from the values of its launches, in which `${NAME}`, `$NAME` and `$(words)` denote unknown
/// values.
void list_unknowns(LaunchReading& reading);

}  // namespace tessera::flags
