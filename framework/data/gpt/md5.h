#pragma once

#include <string>
#include <string_view>

namespace tessera::data {

/// MD5 of `bytes` as 32 lower-case hexadecimal digits (RFC 1321). It names Megatron-LM's cache files; it protects
/// nothing.
std::string md5_hex(std::string_view bytes);

}  // namespace tessera::data
