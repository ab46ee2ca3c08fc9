#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// The checksum CRC-32C (Castagnoli, reflected 0x1EDC6F41) of iSCSI, ext4 and TFRecord: crc32c("123456789") is
/// 0xE3069283. `before` is the checksum of the preceding bytes, so that a range can be processed in pieces. Uses wide
/// carry-less multiplication, or the SSE4.2 instruction in three interleaved streams, if the processor has them, else a
/// table; all give the same result.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// Computes crc32c with carry-less multiplication of 256 bits beside the instruction: for processors that have it, but
/// not that of 512 bits. On others crc32c_by_lanes.
std::uint32_t crc32c_by_rounds(std::span<const std::byte> bytes, std::uint32_t before = 0);
/// Computes crc32c without carry-less multiplication: for short inputs and processors without it.
std::uint32_t crc32c_by_lanes(std::span<const std::byte> bytes, std::uint32_t before = 0);
/// Computes crc32c with the table only: the fallback for processors without SSE4.2, and the reference in tests.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// A checksum as eight hexadecimal digits: "e3069283".
std::string crc_text(std::uint32_t sum);

}  // namespace tessera
