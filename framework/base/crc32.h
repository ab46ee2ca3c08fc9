#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// The checksum of zip archives and of W&B's run files: CRC-32 (IEEE 802.3, reflected 0xEDB88320); 0xCBF43926 for
/// "123456789". `before` is the checksum of the preceding bytes. By carry-less multiplication if the processor has it.
std::uint32_t crc32_ieee(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// The same by tables alone, for processors without such an instruction.
std::uint32_t crc32_ieee_by_tables(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tessera
