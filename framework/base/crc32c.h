#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// CRC-32C (Castagnoli, reflected 0x1EDC6F41), as iSCSI, ext4 and TFRecord use it: crc32c("123456789") is 0xE3069283.
/// `before` is the sum of the bytes that came earlier, so a long range can be summed in pieces.
/// Uses the SSE4.2 instruction in three interleaved streams where the processor has it, a table elsewhere; same result.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// The same by table alone: what crc32c falls back to, and what it is tested against.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// "e3069283": eight hexadecimal digits.
std::string crc_text(std::uint32_t sum);

}  // namespace tessera
