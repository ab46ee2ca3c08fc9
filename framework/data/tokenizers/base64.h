#pragma once

#include <string>
#include <string_view>

namespace tessera::data {

/// The bytes of a text in base 64 (RFC 4648, padded). `name`: what it is, for errors. Throws ConfigError if it is none.
std::string from_base64(std::string_view text, const std::string& name);

}  // namespace tessera::data
