#include "framework/base/mapped_access.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/base/mapped_pages.h"

namespace tessera {

/// Records stay in a list for good, because the signal handler walks it without a lock; free ones have no range.
struct GuardedMapping::Record {
  std::atomic<std::uintptr_t> begin = 0, end = 0;  ///< addresses of whole pages
  std::atomic<bool> lost_pages = false, reported = false;
  std::filesystem::path file;
  Record* next = nullptr;
};

namespace {

using Record = GuardedMapping::Record;

thread_local sigjmp_buf* return_point = nullptr;  ///< of this thread's current access_mapped call; null: none
struct sigaction former_action {};                ///< of SIGBUS
std::atomic<Record*> records = nullptr;
std::uintptr_t page_bytes = 0;
std::atomic<int> sparing = 0;  ///< objects of SparesMappedPages

/// Called by the signal handler: system calls and atomics only.
bool replace_lost_pages(std::uintptr_t address) {
  auto* record = records.load();
  while (record != nullptr && (address < record->begin.load() || address >= record->end.load())) record = record->next;
  if (record == nullptr) return false;
  record->lost_pages = true;  // before another thread can read the zeros
  const int reason = errno;
  const auto first = address / page_bytes * page_bytes;
  const auto* pages = ::mmap(reinterpret_cast<void*>(first), record->end - first, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  errno = reason;
  return pages != MAP_FAILED;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const bool by_access = info->si_code > 0;  // else a process sent the signal
  if (by_access && return_point != nullptr) siglongjmp(*return_point, 1);
  if (by_access && replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr))) return;
  sigaction(SIGBUS, &former_action, nullptr);
  if (!by_access) raise(SIGBUS);  // an access is repeated when this returns, and meets the former action
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // not deferred: the jump leaves the handler without restoring the mask
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &former_action);
  });
}

struct FreeRecords {
  std::mutex mutex;
  std::vector<Record*> records;
};

/// Never destroyed: objects with static storage may end after it would be.
FreeRecords& free_records() {
  static auto* all = new FreeRecords;
  return *all;
}

Record* take_record() {
  auto& free = free_records();
  const std::lock_guard lock(free.mutex);
  if (free.records.empty()) {
    auto* record = new Record;
    record->next = records.load();
    records = record;
    return record;
  }
  auto* record = free.records.back();
  free.records.pop_back();
  return record;
}

/// A record with lost pages is kept, for take_unreported_loss().
void give_back(Record* record) {
  auto& free = free_records();
  const std::lock_guard lock(free.mutex);
  record->end = 0;
  record->begin = 0;
  if (!record->lost_pages) free.records.push_back(record);
}

}  // namespace

SparesMappedPages::SparesMappedPages() { ++sparing; }
SparesMappedPages::~SparesMappedPages() { --sparing; }

void mapped_pages_used() {
  if (sparing == 0) return;
  // While the lock is held, no range ends, so that none of them is unmapped and mapped by somebody else.
  const std::lock_guard lock(free_records().mutex);
  for (auto* record = records.load(); record != nullptr; record = record->next) {
    const auto begin = record->begin.load(), end = record->end.load();
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
}

bool access_mapped(void (*access)(const void* argument), const void* argument) {
  install();
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    return_point = nullptr;
    return false;
  }
  return_point = &here;
  access(argument);
  return_point = nullptr;
  return true;
}

GuardedMapping::GuardedMapping(const void* memory, std::size_t bytes, const std::filesystem::path& file) {
  install();
  record_ = take_record();
  record_->file = file;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  record_->begin = begin;
  record_->end = begin + (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

GuardedMapping::GuardedMapping(GuardedMapping&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}

GuardedMapping& GuardedMapping::operator=(GuardedMapping&& other) noexcept {
  std::swap(record_, other.record_);
  return *this;
}

GuardedMapping::~GuardedMapping() {
  if (record_ != nullptr) give_back(record_);
}

bool GuardedMapping::lost_pages() const {
  if (record_ == nullptr || !record_->lost_pages) return false;
  record_->reported = true;
  return true;
}

std::filesystem::path take_unreported_loss() {
  for (auto* record = records.load(); record != nullptr; record = record->next)
    if (record->lost_pages && !record->reported.exchange(true)) return record->file;
  return {};
}

}  // namespace tessera
