#pragma once

#include <cstdint>
#include <string>

#include "framework/base/error.h"

namespace tessera::data {

/// A sample of a dataset cannot be used: it contains a token outside the vocabulary, or its bytes do not match their
/// checksum. Other samples may be good. If the bytes cannot be read at all, an IoError is thrown instead.
class BadSampleError : public ConfigError {
  using ConfigError::ConfigError;
};

/// A sample that could not be used.
struct BadSample {
  std::int64_t index = 0;  ///< index in its dataset
  std::string reason;      ///< for people: position, value found, value expected
};

}  // namespace tessera::data
