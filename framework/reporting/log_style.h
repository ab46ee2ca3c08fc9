#pragma once

#include "framework/options/option_type.h"

namespace tessera::reporting {

/// Format of a plain progress line.
enum class LogStyle { megatron, core_ms };
inline options::Words<LogStyle> words(LogStyle) {
  return {{"megatron", LogStyle::megatron}, {"core_ms", LogStyle::core_ms}};
}

}  // namespace tessera::reporting
