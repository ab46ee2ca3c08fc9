#pragma once

#include <string>

namespace tessera::options {

/// Expands environment variables in `words`: ${NAME} becomes the value of the variable NAME; ${NAME:-instead} becomes
/// `instead` if NAME is unset or empty; $${ becomes ${. `instead` may contain ${...}, nested up to 100 deep. Throws
/// ConfigError, naming the variable, if it is unset and has no `instead`; and for a ${ that is not closed or has none
/// of these forms.
std::string expand_environment(const std::string& words);

}  // namespace tessera::options
