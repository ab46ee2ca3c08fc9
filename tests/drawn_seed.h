#pragma once

#include <cstdlib>

namespace tessera {

/// The seed of cases that a test draws: TESSERA_TEST_SEED, if it is set, draws others than usual.
inline unsigned drawn_seed(unsigned usual = 20261126) {
  const char* given = std::getenv("TESSERA_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : usual;
}

}  // namespace tessera
