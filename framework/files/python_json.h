#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::files {

/// `value` as written by Python's json.dumps(value, indent=4), without a final newline: non-ASCII characters as \uXXXX
/// (characters above U+FFFF as two surrogates), a byte that is not UTF-8 as the surrogate with which Python represents
/// it in a path (\udc80 to \udcff), floating-point numbers as python_float writes them.
std::string python_json(const nlohmann::ordered_json& value);

/// A finite number as Python's repr(float) writes it: the fewest digits that are read back as `value`; at least one
/// digit after the point; an exponent below 1e-4 and from 1e16 on: "0.0", "1e-05", "1.5e+16".
std::string python_float(double value);

}  // namespace tessera::files
