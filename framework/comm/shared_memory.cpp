#include "framework/comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tessera::comm {
namespace {

std::byte* map_range(int descriptor, std::size_t offset, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return nullptr;
  ::madvise(data, bytes, MADV_HUGEPAGE);  // if huge pages are available for shared memory; else no effect
  ::madvise(data, bytes, MADV_DONTDUMP);  // core dumps would have the memory of all processes that share it, each
  return static_cast<std::byte*>(data);
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes) {
  SharedMemory memory;
  memory.size_ = bytes;
  memory.descriptor_ = ::memfd_create("tessera", MFD_CLOEXEC);
  if (memory.descriptor_ >= 0 && ::ftruncate(memory.descriptor_, static_cast<off_t>(bytes)) == 0)
    memory.data_ = map_range(memory.descriptor_, 0, bytes);
  if (memory.data_ == nullptr)
    throw CommError(text("shared memory: the system gave no ", bytes, " bytes: ", std::strerror(errno)));
  return memory;
}

SharedMemory SharedMemory::map(int descriptor, std::size_t offset, std::size_t bytes) {
  SharedMemory memory;
  memory.size_ = bytes;
  memory.offset_ = offset;
  memory.descriptor_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (memory.descriptor_ >= 0) memory.data_ = map_range(memory.descriptor_, offset, bytes);
  if (memory.data_ == nullptr)
    throw CommError(text("shared memory: ", bytes, " bytes of a file cannot be mapped: ", std::strerror(errno)));
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(int pid, int descriptor, std::size_t offset, std::size_t bytes) {
  const std::string path = text("/proc/", pid, "/fd/", descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return std::nullopt;
  SharedMemory memory;
  memory.size_ = bytes;
  memory.offset_ = offset;
  // Mapping beyond the end of the file would kill the process on access.
  if (::lseek(own, 0, SEEK_END) >= static_cast<off_t>(offset + bytes)) memory.data_ = map_range(own, offset, bytes);
  ::close(own);
  if (memory.data_ == nullptr) return std::nullopt;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      offset_(other.offset_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(offset_, other.offset_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
  close_descriptor();
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace tessera::comm
