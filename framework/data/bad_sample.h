#pragma once

#include <cstdint>
#include <string>

#include "framework/base/error.h"

namespace tessera::data {

/// One sample of a dataset cannot be used: it holds a token outside the vocabulary, or its bytes do not have their
/// checksum. The others may be good. A sample whose bytes cannot be read at all is an IoError.
class BadSampleError : public ConfigError {
  using ConfigError::ConfigError;
};

/// A sample that could not be used.
struct BadSample {
  std::int64_t index = 0;  ///< in its dataset
  std::string reason;      ///< for people: where, what came, what was expected
};

}  // namespace tessera::data
