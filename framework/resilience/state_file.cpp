#include "framework/resilience/state_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "framework/base/crc32c.h"
#include "framework/base/system_call.h"

namespace tessera::resilience {
namespace {

constexpr std::size_t page = StateFile::first_section;
constexpr std::uint64_t magic = 0x3145544154535354;  // "TSSTATE1"
constexpr std::uint32_t format_version = 3;          // of everything in the file

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

std::uint32_t checksum(const std::vector<std::size_t>& sizes) { return crc32c(std::as_bytes(std::span(sizes))); }

}  // namespace

struct StateFile::Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t sections;  ///< checksum of their sizes
  StateKey key;
  std::atomic<std::uint32_t> ready;
};

StateFile::StateFile(const std::filesystem::path& path, const StateKey& key, std::vector<std::size_t> sections,
                     std::size_t mapped)
    : path_(path), sizes_(std::move(sections)), bytes_(page), mapped_(mapped) {
  static_assert(sizeof(Header) <= page);
  for (const auto size : sizes_) {
    offsets_.push_back(bytes_);
    bytes_ += whole_pages(size);
  }
  try {
    taken_over_ = take_over(key);
    if (!taken_over_) create(key);
  } catch (...) {
    if (descriptor_ >= 0) close(descriptor_);
    throw;
  }
}

std::size_t StateFile::bytes(std::span<const std::size_t> sections) {
  std::size_t all = page;
  for (const auto size : sections) all += whole_pages(size);
  return all;
}

std::optional<StateFile::Front> StateFile::read_front(std::span<const std::byte> file) {
  if (file.size() < page) return std::nullopt;
  const auto& found = *reinterpret_cast<const Header*>(file.data());
  if (found.magic != magic || found.version != format_version) return std::nullopt;
  return Front{found.key, found.ready.load(std::memory_order_acquire) != 0};
}

StateFile::~StateFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void StateFile::map_front(std::size_t mapped) {
  front_ = comm::SharedMemory::map(descriptor_, 0, mapped < sizes_.size() ? offsets_[mapped] : bytes_);
  front_.close_descriptor();
}

bool StateFile::take_over(const StateKey& key) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) return false;
  Header found = {};
  const auto size = lseek(descriptor_, 0, SEEK_END);
  // Read, not mapped: the file may be shorter than a header, and an access behind its end would kill the process.
  const bool readable = pread(descriptor_, static_cast<void*>(&found), sizeof found, 0) == sizeof found;
  if (!readable || found.magic != magic || found.ready.load() == 0) {
    close(descriptor_);
    descriptor_ = -1;
    return false;
  }
  const char* differs =
      found.version != format_version                                        ? "by another version of Tessera"
      : found.key.rank != key.rank || found.key.ranks != key.ranks           ? "by another rank or number of ranks"
      : found.key.recipe != key.recipe                                       ? "with another recipe"
      : found.key.layout != key.layout || found.sections != checksum(sizes_) ? "with another model or layout"
      : size != static_cast<off_t>(bytes_)                                   ? "with another size"
                                                                             : nullptr;
  if (differs != nullptr)
    throw ConfigError(
        text("the state in ", path_.string(), " was left ", differs,
             ", and is not changed. Continue with the recipe and program that left it, or delete the file: "
             "the run then continues from its newest checkpoint"));
  map_front(mapped_);
  return true;
}

void StateFile::create(const StateKey& key) {
  // A link leads to memory that the launcher holds and that has no name of its own; it is emptied and used again.
  const bool held = std::filesystem::is_symlink(path_);
  if (!held) unlink(path_.c_str());  // what a start that was not completed left
  descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | (held ? O_TRUNC : O_CREAT | O_EXCL), 0600);
  if (descriptor_ < 0) throw IoError(text("cannot create ", path_.string(), ": ", std::strerror(errno)));
  // On a disk every step would write all state through the page cache.
  struct statfs system = {};
  if (fstatfs(descriptor_, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    if (!held) unlink(path_.c_str());
    throw IoError(text(path_.parent_path().string(), " is not in memory"));
  }
  // Not ENOSPC at the first access, which would kill the process.
  const int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
  if (error != 0) {
    struct statvfs room = {};
    const bool known = fstatvfs(descriptor_, &room) == 0;
    if (held)
      static_cast<void>(ftruncate(descriptor_, 0));
    else
      unlink(path_.c_str());
    throw IoError(text("the state of rank ", key.rank, " needs ", bytes_, " bytes in ", path_.parent_path().string(),
                       known ? text(", which has ", room.f_bavail * room.f_frsize, " bytes free") : "", ": ",
                       std::strerror(error)));
  }
  map_front(mapped_);
  auto& h = header();
  h.magic = magic;
  h.version = format_version;
  h.sections = checksum(sizes_);
  h.key = key;
}

// Stored after everything else: a file of a start that died before it is not taken over (see take_over).
void StateFile::set_ready() { header().ready.store(1, std::memory_order_release); }

void StateFile::discard() noexcept {
  if (!std::filesystem::is_symlink(path_))
    unlink(path_.c_str());
  else if (ftruncate(descriptor_, 0) != 0)
    header().ready.store(0, std::memory_order_release);
}

std::span<std::byte> StateFile::section(std::size_t index) const {
  must(index < mapped_, "a section that this object maps");
  return {front_.data() + offsets_[index], sizes_[index]};
}

}  // namespace tessera::resilience
