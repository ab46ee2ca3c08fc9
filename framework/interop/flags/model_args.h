#pragma once

#include <string>

#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// The launch of a MODEL_ARGS file of Megatron's functional tests, whose text is `words`: `true` makes a bare flag,
/// `false` and nothing leave it out, "[a b]" and lists give several words, the second of two equal keys counts. What is
/// wrong goes to `report`. Source: tests/functional_tests/shell_test_utils/_run_training.sh of Megatron-LM.
LaunchReading read_model_args(const std::string& words, const std::string& file, options::Report& report);

/// `words` with empty lines where a flag stands that is given again in the same map: YAML takes no key twice, their
/// test program does, and the last counts. Notes say so.
std::string without_repeated_flags(const std::string& words, const std::string& file, options::Report& report);

/// Fills `reading.unknowns` from the values of its launches, where `${NAME}`, `$NAME` and `$(words)` stand for what is
/// not known.
void list_unknowns(LaunchReading& reading);

}  // namespace tessera::flags
