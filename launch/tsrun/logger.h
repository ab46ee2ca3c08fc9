#pragma once

#include "framework/log/log.h"

namespace tessera::tsrun {

/// The logger of the launcher.
inline const log::Logger logger("tsrun");

}  // namespace tessera::tsrun
