#pragma once

#include <string>

#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// Whose flags a launch has, and what shows that.
struct Guess {
  std::string table;  ///< what --from calls it: "mindspeed-llm"
  std::string why;    ///< "--ai-framework is MindSpeed-LLM's"
};

/// Tell by the flags, the launcher and the program. First what shows it by itself (mappings/sources.yaml); then the
/// table that knows most of the flags, which is the usual one where several know equally many.
Guess guess_source(const Launch& launch, const options::Mappings& mappings);

}  // namespace tessera::flags
