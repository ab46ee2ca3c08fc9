#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

/// Who holds the FolderLock (base/files.h) of a folder.
struct FolderUse {
  enum class State {
    free,    ///< nobody; an owner that ended in order has released it
    held,    ///< a process of this host
    left,    ///< nobody; its last owner was killed, or its host went down
    unknown  ///< `owner` is a process of another host
  };
  State state = State::free;
  std::string owner;  ///< "process 123 on host"; empty if the state is free
};
/// Takes no lock and writes nothing, so it never disturbs the owner. Does not throw; a file that cannot be read counts
/// as free.
FolderUse folder_use(const std::filesystem::path& folder);

/// The process that holds a lock of flock() on the file with this inode, as this host lists it; 0 if the process
/// belongs to another PID namespace. Nothing if no process of this host holds one, or the system has no such list.
std::optional<::pid_t> flock_owner(::ino_t inode);

}  // namespace tessera
