#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/error.h"

namespace tessera::data {

/// Throws ConfigError, naming the codec, if the CompressionCodec `codec` of the Parquet format is not supported:
/// uncompressed, Snappy, gzip and Zstandard are.
void check_parquet_codec(int codec);

/// Replaces `out` by the `bytes` bytes that `in` holds in compressed form. Throws ConfigError if it does not hold
/// exactly so many. Memory grows with what is really there, not with what a damaged file claims.
void decompress_parquet(int codec, std::span<const std::byte> in, std::size_t bytes, std::vector<std::byte>& out);

}  // namespace tessera::data
