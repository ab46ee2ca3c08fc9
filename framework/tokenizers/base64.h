#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizers {

/// Decodes a base64 text (RFC 4648, padded). `name`: what the text is, for error messages. Throws ConfigError if it is
/// not valid base64.
std::string from_base64(std::string_view text, const std::string& name);

}  // namespace tessera::tokenizers
