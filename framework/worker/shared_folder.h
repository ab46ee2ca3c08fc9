#pragma once

#include <filesystem>

namespace tessera::worker {

/// A folder of a job that several processes use, which may be on different hosts if these share /dev/shm or /tmp
/// (containers, network namespaces): each has one object. The last user deletes the folder. A user is known by a lock
/// on a file in the folder, so one that was killed does not count, and a stopped one does.
class SharedFolder {
 public:
  /// Name of the file with the locks.
  static constexpr const char* users_file = "state.users";

  /// Creates the folder, for this user only, unless it exists, and uses it. Throws ConfigError if it cannot be created.
  static SharedFolder make(const std::filesystem::path& path);
  /// Uses the folder if it exists; otherwise the object does nothing.
  static SharedFolder use(const std::filesystem::path& path);
  SharedFolder(SharedFolder&& other) noexcept;
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  SharedFolder& operator=(SharedFolder&&) = delete;
  /// Ends the use, and deletes the folder with its content if nobody else uses it.
  ~SharedFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Whether another object, of this or another process, uses the folder. True if it cannot be found out.
  bool has_other_users() const;
  /// Whether the folder is kept when this object is destroyed; at first it is not.
  void keep(bool kept) { kept_ = kept; }

  /// Whether any object uses the folder.
  static bool is_used(const std::filesystem::path& path);
  /// Deletes the folder with its content, unless an object uses it. Returns whether the folder is gone.
  static bool remove_unless_used(const std::filesystem::path& path);

 private:
  SharedFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::filesystem::path path_;
  int lock_ = -1;  ///< descriptor of the file, with a shared lock; -1: the folder is not used
  bool kept_ = false;
};

}  // namespace tessera::worker
