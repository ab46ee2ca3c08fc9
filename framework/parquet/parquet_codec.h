#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/error.h"

namespace tessera::parquet {

/// Throws ConfigError, naming the codec, if the CompressionCodec `codec` of the Parquet format is not supported:
/// uncompressed, Snappy, gzip and Zstandard are.
void check_parquet_codec(int codec);

/// Decompresses `in` into `out`, whose old content is replaced. Throws ConfigError if the result is not exactly `bytes`
/// bytes long. Memory grows with the actual data, not with the size that a damaged file claims.
void decompress_parquet(int codec, std::span<const std::byte> in, std::size_t bytes, std::vector<std::byte>& out);

}  // namespace tessera::parquet
