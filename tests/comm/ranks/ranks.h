#pragma once

#include "framework/comm/world.h"

namespace tessera {

/// The run that all tests of this program work in.
const World& world();
/// A group of all ranks whose members share memory, and one whose bytes travel as messages: tests go through both.
Transport transport();

}  // namespace tessera
