#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "framework/base/error.h"

namespace tessera {

/// A size with the name by which the user knows it.
struct NamedSize {
  const char* name;
  std::int64_t value;
};

/// A size that does not fit into 64 bits.
class SizeError : public ConfigError {
 public:
  explicit SizeError(const std::string& message)
      : ConfigError(message + "; make one of them smaller"), message_(message) {}
  const std::string& message() const { return message_; }  ///< without the advice

 private:
  std::string message_;
};

/// The product of all, or the sum. Throws SizeError, "batch_size 5 x micro_batch_num 7 does not fit into 64 bits;
/// make one of them smaller", when the result is above 2^63 - 1. For sizes that come from a user: a recipe, a file.
std::int64_t checked_product(std::initializer_list<NamedSize> factors);
std::int64_t checked_sum(std::initializer_list<NamedSize> terms);

}  // namespace tessera
