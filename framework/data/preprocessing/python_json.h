#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::data {

/// `value` as written by Python's json.dumps(value, indent=4), without a final newline: non-ASCII characters as \uXXXX
/// (characters above U+FFFF as two surrogates), a byte that is not UTF-8 as the surrogate with which Python represents
/// it in a path (\udc80 to \udcff), numbers in their shortest form.
std::string python_json(const nlohmann::ordered_json& value);

}  // namespace tessera::data
