#pragma once

#include <string>
#include <string_view>

namespace tessera::gpt {

/// MD5 of `bytes` as 32 lower-case hexadecimal digits (RFC 1321). Used only for the names of Megatron-LM's cache files,
/// not for security.
std::string md5_hex(std::string_view bytes);

}  // namespace tessera::gpt
