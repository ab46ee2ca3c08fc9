#include "framework/checkpoint/room.h"

#include <system_error>

#include "framework/base/error.h"

namespace tessera::checkpoint {

void must_have_room(const std::filesystem::path& folder, std::uint64_t bytes) {
  auto there = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(there) && there.has_relative_path()) there = there.parent_path();
  std::error_code unknown;
  const auto space = std::filesystem::space(there, unknown);
  if (!unknown && space.available < bytes)
    throw IoError(text(folder.string(), ": the checkpoint needs ", bytes, " bytes, and its disk has ", space.available,
                       " left; nothing was written; free some, or give another folder"));
}

}  // namespace tessera::checkpoint
