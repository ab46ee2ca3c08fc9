#pragma once

#include <cstdint>
#include <filesystem>

namespace tessera::checkpoint {

/// Throws IoError if the disk of `folder`, which need not exist yet, has fewer than `bytes` bytes left. To be called
/// before a conversion writes anything.
void must_have_room(const std::filesystem::path& folder, std::uint64_t bytes);

}  // namespace tessera::checkpoint
