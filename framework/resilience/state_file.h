#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "framework/comm/shared_memory.h"

namespace tessera::resilience {

/// What the process that left a state file and the one that takes it over must have in common.
struct StateKey {
  std::uint64_t layout = 0;          ///< checksum of what lies where in the file
  std::uint64_t recipe = 0;          ///< checksum of the options that determine the numbers of the run
  std::int32_t rank = 0, ranks = 1;  ///< of the run
  bool operator==(const StateKey&) const = default;
};

/// The file in memory that holds all that training changes on one rank. It outlives the process, so that the next one
/// continues with the same step. It consists of sections, each at the beginning of a page. All pages are reserved when
/// the file is created, so no later access fails for want of memory. Only its owner may read it (mode 0600), and core
/// dumps do not contain it.
class StateFile {
 public:
  /// Takes over the file at `path` if a process with the same key has called set_ready, else creates it, all zeros. A
  /// symbolic link there is of the launcher, to a memfd that it holds. `sections`: their sizes in bytes; the first
  /// `mapped` of them are mapped by this object. Throws ConfigError if a file that is ready has another key or other
  /// sections; it stays as it is. Throws IoError with the number of bytes if there is no room, or if the file would be
  /// on a disk.
  StateFile(const std::filesystem::path& path, const StateKey& key, std::vector<std::size_t> sections,
            std::size_t mapped);
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile();

  /// Bytes of a file with such sections.
  static std::size_t bytes(std::span<const std::size_t> sections);

  /// Where the first section begins.
  static constexpr std::size_t first_section = 4096;
  /// What the beginning of a file says; absent if it is none of this version.
  struct Front {
    StateKey key;
    bool ready = false;
  };
  static std::optional<Front> read_front(std::span<const std::byte> file);

  /// Whether an earlier process left it.
  bool taken_over() const { return taken_over_; }
  /// From now on a later process takes it over.
  void set_ready();
  /// Gives the memory back, as far as no process uses it; later processes create the file again.
  void discard() noexcept;

  int descriptor() const { return descriptor_; }
  /// First byte of a section in the file, a multiple of the page size.
  std::size_t offset(std::size_t section) const { return offsets_[section]; }
  /// One of the first `mapped` sections; valid as long as this object.
  std::span<std::byte> section(std::size_t index) const;

 private:
  struct Header;
  Header& header() const { return *reinterpret_cast<Header*>(front_.data()); }
  bool take_over(const StateKey& key);
  void create(const StateKey& key);
  void map_front(std::size_t mapped);

  std::filesystem::path path_;
  std::vector<std::size_t> sizes_, offsets_;
  std::size_t bytes_ = 0;  ///< of the file
  std::size_t mapped_ = 0;
  int descriptor_ = -1;
  bool taken_over_ = false;
  comm::SharedMemory front_;
};

}  // namespace tessera::resilience
