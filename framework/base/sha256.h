#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// SHA-256 of `bytes` as 64 hexadecimal digits. Source: FIPS 180-4.
std::string sha256(std::string_view bytes);

}  // namespace tessera
