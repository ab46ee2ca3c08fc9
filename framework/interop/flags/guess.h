#pragma once

#include <string>

#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// The program whose flags a launch has, and the reason.
struct Guess {
  std::string table;  ///< name for --from: "mindspeed-llm"
  std::string why;    ///< "--ai-framework is MindSpeed-LLM's"
};

/// Guesses the program from the flags, the launcher and the program file: first by unique marks
/// (mappings/sources.yaml); then the table that has most of the flags, FlagTable::usual if several have equally many.
Guess guess_source(const Launch& launch, const options::Mappings& mappings);

}  // namespace tessera::flags
