#pragma once

#include "framework/comm/world.h"

namespace tessera {

/// The run that all tests of this program work in: each test runs on all its ranks at once.
const comm::World& world();
/// How bytes travel in it; ctest starts the tests in both ways.
comm::Transport transport();

}  // namespace tessera
