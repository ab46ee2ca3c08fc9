#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "framework/base/error.h"

namespace tessera {

/// A size and the name by which the user knows it, such as the key of an option; used in error messages.
struct NamedSize {
  const char* name;
  std::int64_t value;
};

/// A product or sum of user-given sizes does not fit into 64 bits. what() ends with the advice "make one of them
/// smaller".
class SizeError : public ConfigError {
 public:
  explicit SizeError(const std::string& message)
      : ConfigError(message + "; make one of them smaller"), message_(message) {}
  const std::string& message() const { return message_; }  ///< the text of what() without the advice

 private:
  std::string message_;
};

/// The product of all `factors`, for sizes that come from a user: a recipe, a file. Throws SizeError, "batch_size 5 x
/// micro_batch_num 7 does not fit into 64 bits; make one of them smaller", if the result is above 2^63 - 1.
std::int64_t checked_product(std::initializer_list<NamedSize> factors);
/// The sum of all `terms`. Throws SizeError as checked_product does, with " + " between the terms.
std::int64_t checked_sum(std::initializer_list<NamedSize> terms);

}  // namespace tessera
