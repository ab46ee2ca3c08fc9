// Preloaded into a program (LD_PRELOAD): system calls on a file that go wrong, by the variables
//   FILE_FAULT_RANK   the rank that has the fault (RANK of its environment); any: all of them
//   FILE_FAULT_PATH   what the path of the file contains
//   FILE_FAULT        unreadable FIRST END     reads of these bytes end with EIO
//                     write NUMBER             this write to such files, counted from 1, ends with EIO
//                     short NUMBER             from this write on, each writes one byte
//                     lie NUMBER               this write says that it wrote, and leaves zeros
//                     sync NUMBER              this fsync of such files ends with EIO
//                     hold NUMBER              this write waits until there is a file with the name in FILE_FAULT_GO
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Fault {
  std::string kind, path;
  long first = 0, end = 0;

  Fault() {
    const auto* words = std::getenv("FILE_FAULT");
    const auto *rank = std::getenv("RANK"), *wanted = std::getenv("FILE_FAULT_RANK"),
               *name = std::getenv("FILE_FAULT_PATH");
    if (words == nullptr || rank == nullptr || wanted == nullptr || name == nullptr) return;
    if (std::strcmp(wanted, "any") != 0 && std::strcmp(rank, wanted) != 0) return;
    char read[32] = "";
    if (std::sscanf(words, "%31s %ld %ld", read, &first, &end) >= 2) kind = read, path = name;
  }
};

const Fault& fault() {
  static const Fault one;
  return one;
}

/// Whether it is a call of this kind on the file.
bool concerns(const char* kind, int descriptor) {
  if (fault().kind != kind) return false;
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = readlink(link.c_str(), path, sizeof path - 1);
  return length > 0 && std::string(path, static_cast<std::size_t>(length)).find(fault().path) != std::string::npos;
}

std::atomic<long> writes{0}, syncs{0};

template <class Function>
Function original(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t pread(int descriptor, void* into, size_t count, off_t offset) {
  static const auto real = original<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  if (concerns("unreadable", descriptor) && offset < fault().end &&
      offset + static_cast<off_t>(count) > fault().first) {
    errno = EIO;
    return -1;
  }
  return real(descriptor, into, count, offset);
}

extern "C" ssize_t write(int descriptor, const void* from, size_t count) {
  static const auto real = original<ssize_t (*)(int, const void*, size_t)>("write");
  if (concerns("write", descriptor) && ++writes == fault().first) {
    errno = EIO;
    return -1;
  }
  if (concerns("short", descriptor) && count > 1 && ++writes >= fault().first) return real(descriptor, from, 1);
  if (concerns("hold", descriptor) && ++writes == fault().first)
    while (access(std::getenv("FILE_FAULT_GO"), F_OK) != 0) usleep(1000);
  if (concerns("lie", descriptor) && ++writes == fault().first)
    return real(descriptor, std::vector<char>(count).data(), count);
  return real(descriptor, from, count);
}

extern "C" int fsync(int descriptor) {
  static const auto real = original<int (*)(int)>("fsync");
  if (concerns("sync", descriptor) && ++syncs == fault().first) {
    errno = EIO;
    return -1;
  }
  return real(descriptor);
}
