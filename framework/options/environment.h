#pragma once

#include <string>

namespace tessera::options {

/// `words` with each ${NAME} replaced by what the environment says, ${NAME:-instead} by `instead` where NAME is
/// unset or empty, and $${ by ${. `instead` may itself hold ${...}.
/// Throws ConfigError, naming the variable, when it is unset and nothing stands in; and for a ${ that is not
/// closed or not one of these forms.
std::string expand_environment(const std::string& words);

}  // namespace tessera::options
