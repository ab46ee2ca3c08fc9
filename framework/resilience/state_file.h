#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "framework/comm/shared_memory.h"

namespace tessera::resilience {

/// What must be equal for the process that left a state file and the process that takes it over.
struct StateKey {
  std::uint64_t layout = 0;          ///< checksum of the layout of the file
  std::uint64_t recipe = 0;          ///< checksum of the options that determine the numbers of the run
  std::int32_t rank = 0, ranks = 1;  ///< rank, and number of ranks of the run
  bool operator==(const StateKey&) const = default;
};

/// The file in memory with everything that training changes on one rank. It outlives the process, so the next process
/// continues with the same step. It consists of sections; each begins at a page boundary. All pages are reserved when
/// the file is created, so a later access cannot fail for lack of memory. Only the owner may read the file (mode 0600),
/// and core dumps do not contain it.
class StateFile {
 public:
  /// Takes over the file at `path` if a process with the same key has called set_ready(); otherwise creates it, filled
  /// with zeros. A symbolic link at `path` is the launcher's and leads to a memfd that the launcher holds. `sections`:
  /// sizes in bytes; this object maps the first `mapped` of them. Throws ConfigError if a file that is ready has
  /// another key or other sections; the file is not changed. Throws IoError if there is no room (the message says how
  /// many bytes are needed) or if the file would be on a disk.
  StateFile(const std::filesystem::path& path, const StateKey& key, std::vector<std::size_t> sections,
            std::size_t mapped);
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile();

  /// Size in bytes of a file with these sections.
  static std::size_t bytes(std::span<const std::size_t> sections);

  /// Offset of the first section, in bytes.
  static constexpr std::size_t first_section = 4096;
  /// The header of a file.
  struct Front {
    StateKey key;
    bool ready = false;
  };
  /// Reads the header from the first bytes of a file; absent if it is not a state file of this version.
  static std::optional<Front> read_front(std::span<const std::byte> file);

  /// Whether the file was left by an earlier process.
  bool taken_over() const { return taken_over_; }
  /// Marks the file as complete: from now on a later process takes it over.
  void set_ready();
  /// Deletes the file; its memory is freed when no process uses it any more. A later process creates the file again.
  void discard() noexcept;

  int descriptor() const { return descriptor_; }  ///< owned by this object
  /// Offset of a section in the file, in bytes; a multiple of the page size.
  std::size_t offset(std::size_t section) const { return offsets_[section]; }
  /// The memory of one of the first `mapped` sections; valid as long as this object. Throws BugError for another
  /// section.
  std::span<std::byte> section(std::size_t index) const;

 private:
  struct Header;
  Header& header() const { return *reinterpret_cast<Header*>(front_.data()); }
  bool take_over(const StateKey& key);
  void create(const StateKey& key);
  void map_front(std::size_t mapped);

  std::filesystem::path path_;
  std::vector<std::size_t> sizes_, offsets_;
  std::size_t bytes_ = 0;   ///< size of the file
  std::size_t mapped_ = 0;  ///< number of sections that are mapped
  int descriptor_ = -1;
  bool taken_over_ = false;
  comm::SharedMemory front_;
};

}  // namespace tessera::resilience
