#include "framework/worker/operation_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <utility>

namespace tessera {
namespace {

constexpr std::uint64_t magic = 0x3152505245545354;  // also the version of the layout
constexpr std::size_t kept = 8;

template <std::size_t size>
void set(std::array<char, size>& field, std::string_view words) {
  const std::size_t length = std::min(words.size(), size - 1);
  std::memcpy(field.data(), words.data(), length);
  field[length] = 0;
}
template <std::size_t size>
std::string get(const std::array<char, size>& field) {
  return {field.data(), ::strnlen(field.data(), size)};
}

std::string seconds(double value) { return text(std::fixed, std::setprecision(1), value, " s"); }

}  // namespace

/// A seqlock: an entry's version is odd while it is being written, and higher afterwards. The writer never waits for
/// readers, and a reader never sees half an entry.
struct OperationRecord::Page {
  struct Entry {
    std::atomic<std::uint64_t> version;
    std::uint64_t sequence, bytes;
    double entered, left;  // left: 0 while inside the operation
    std::array<char, 40> group;
    std::array<char, 40> operation;
    std::array<char, 136> who;
  };
  std::atomic<std::uint64_t> magic;
  std::int32_t rank, pid;
  std::atomic<std::uint64_t> entered;  // operations so far; the newest is entry (entered - 1) % kept
  std::array<Entry, kept> entries;
};

namespace {
constexpr std::size_t page_bytes = 4096;
}

double OperationRecord::now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

namespace {
/// Closes a descriptor, unless it is taken.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  int take() { return std::exchange(number, -1); }
};

void* map_page(int descriptor, int protection) {
  void* page = ::mmap(nullptr, page_bytes, protection, MAP_SHARED, descriptor, 0);
  return page == MAP_FAILED ? nullptr : page;
}

void* new_page(int descriptor, const std::string& name) {
  if (descriptor < 0) throw IoError(text(name, ": cannot be made: ", std::strerror(errno)));
  void* page = ::ftruncate(descriptor, page_bytes) == 0 ? map_page(descriptor, PROT_READ | PROT_WRITE) : nullptr;
  if (page == nullptr) throw IoError(text(name, ": cannot be mapped: ", std::strerror(errno)));
  return page;
}
}  // namespace

std::filesystem::path operations_file(const std::filesystem::path& folder, int rank) {
  return folder / text("operations.", rank);
}

OperationRecord OperationRecord::create(const std::filesystem::path& file, int rank) {
  static_assert(sizeof(Page) <= page_bytes);
  // A reader may still have the old file mapped; a new inode leaves it intact.
  ::unlink(file.c_str());
  Descriptor descriptor{::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  auto* page = new (new_page(descriptor.number, file.string())) Page;
  page->rank = rank;
  page->pid = ::getpid();
  page->magic.store(magic, std::memory_order_release);
  return {page, descriptor.take()};
}

OperationRecord OperationRecord::create(int rank) {
  Descriptor descriptor{::memfd_create("tessera_operations", MFD_CLOEXEC)};
  auto* page = new (new_page(descriptor.number, "record of operations")) Page;
  page->rank = rank;
  page->pid = ::getpid();
  page->magic.store(magic, std::memory_order_release);
  return {page, descriptor.take()};
}

std::optional<OperationRecord> OperationRecord::open(const std::filesystem::path& file) {
  const Descriptor descriptor{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat facts {};
  if (descriptor.number < 0 || ::fstat(descriptor.number, &facts) != 0) return std::nullopt;
  if (facts.st_size < static_cast<off_t>(page_bytes)) return std::nullopt;
  void* page = map_page(descriptor.number, PROT_READ);
  if (page == nullptr) return std::nullopt;
  OperationRecord record(static_cast<Page*>(page), -1);
  if (record.page_->magic.load(std::memory_order_acquire) != magic) return std::nullopt;
  return record;
}

OperationRecord::OperationRecord(OperationRecord&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OperationRecord& OperationRecord::operator=(OperationRecord&& other) noexcept {
  std::swap(page_, other.page_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OperationRecord::~OperationRecord() {
  if (page_ != nullptr) ::munmap(page_, page_bytes);
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::filesystem::path OperationRecord::descriptor_path() const {
  return text("/proc/", ::getpid(), "/fd/", descriptor_);
}

void OperationRecord::enter(std::string_view group, std::string_view operation, std::uint64_t sequence,
                            std::uint64_t bytes, std::string_view who) {
  const std::uint64_t number = page_->entered.load(std::memory_order_relaxed);
  // The fence orders the odd version before the new content; the final release store orders the content before the even
  // version.
  Page::Entry& entry = page_->entries[number % kept];
  const std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.sequence = sequence;
  entry.bytes = bytes;
  entry.entered = now();
  entry.left = 0;
  set(entry.group, group);
  set(entry.operation, operation);
  set(entry.who, who);
  entry.version.store(version + 2, std::memory_order_release);
  page_->entered.store(number + 1, std::memory_order_release);
}

void OperationRecord::leave() {
  const std::uint64_t number = page_->entered.load(std::memory_order_relaxed);
  if (number == 0) return;
  Page::Entry& entry = page_->entries[(number - 1) % kept];
  const std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.left = now();
  entry.version.store(version + 2, std::memory_order_release);
}

int OperationRecord::rank() const { return page_->rank; }
int OperationRecord::pid() const { return page_->pid; }

std::vector<OperationEntry> OperationRecord::read() const {
  std::vector<OperationEntry> entries;
  const std::uint64_t newest = page_->entered.load(std::memory_order_acquire);
  for (std::uint64_t back = 1; back <= std::min<std::uint64_t>(newest, kept); ++back) {
    const Page::Entry& entry = page_->entries[(newest - back) % kept];
    for (int attempt = 0; attempt < 100; ++attempt) {
      const std::uint64_t before = entry.version.load(std::memory_order_acquire);
      OperationEntry copy{.group = get(entry.group),
                          .operation = get(entry.operation),
                          .who = get(entry.who),
                          .sequence = entry.sequence,
                          .bytes = entry.bytes,
                          .entered = entry.entered,
                          .left = std::nullopt};
      if (entry.left != 0) copy.left = entry.left;
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 != 0 || entry.version.load(std::memory_order_relaxed) != before) continue;
      entries.push_back(std::move(copy));
      break;
    }
  }
  return entries;
}

std::string describe(const OperationEntry& entry, double now) {
  std::string story = entry.inside() ? "in " : "in no operation; its last was ";
  story += entry.operation;
  if (entry.sequence != 0) story += text(" ", entry.sequence);
  story += text(" of group ", entry.group, ", ", entry.bytes, " bytes, asked by '", entry.who, "', ");
  return story +
         (entry.inside() ? "for " + seconds(now - entry.entered) : "left " + seconds(now - *entry.left) + " ago");
}

}  // namespace tessera
