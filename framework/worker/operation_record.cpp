#include "framework/worker/operation_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <utility>

namespace tessera::worker {
namespace {

constexpr std::uint64_t magic = 0x3152505245545354;  // identifies the page and the version of its layout
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

/// A seqlock: the version of an entry is odd while the entry is written, and higher afterwards. The writer never waits
/// for readers, and a reader never accepts a half-written entry. All words are atomic, because writer and readers
/// access them at the same time.
struct OperationRecord::Page {
  struct Content {
    std::uint64_t sequence, bytes;
    double entered, left;  // left: 0 while inside the operation
    std::array<char, 40> group;
    std::array<char, 40> operation;
    std::array<char, 136> who;
  };
  using Words = std::array<std::uint64_t, sizeof(Content) / sizeof(std::uint64_t)>;

  struct Entry {
    std::atomic<std::uint64_t> version;
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> words;

    // The release stores order each word after the odd version: a reader that sees a new word also sees that the
    // version has changed.
    void write(const Content& content) {
      const auto values = std::bit_cast<Words>(content);
      const std::uint64_t before = version.load(std::memory_order_relaxed);
      version.store(before + 1, std::memory_order_relaxed);
      for (std::size_t i = 0; i < values.size(); ++i) words[i].store(values[i], std::memory_order_release);
      version.store(before + 2, std::memory_order_release);
    }
    /// Returns nothing if the entry is being written.
    std::optional<Content> read() const {
      const std::uint64_t before = version.load(std::memory_order_acquire);
      Words values;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = words[i].load(std::memory_order_acquire);
      if (before % 2 != 0 || version.load(std::memory_order_relaxed) != before) return std::nullopt;
      return std::bit_cast<Content>(values);
    }
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
/// Closes a descriptor, unless take() has been called.
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
  // A reader may still have the old file mapped; a new inode leaves that mapping intact.
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
  Page::Content content{
      .sequence = sequence, .bytes = bytes, .entered = now(), .left = 0, .group = {}, .operation = {}, .who = {}};
  set(content.group, group);
  set(content.operation, operation);
  set(content.who, who);
  page_->entries[number % kept].write(content);
  page_->entered.store(number + 1, std::memory_order_release);
}

void OperationRecord::leave() {
  const std::uint64_t number = page_->entered.load(std::memory_order_relaxed);
  if (number == 0) return;
  Page::Entry& entry = page_->entries[(number - 1) % kept];
  auto content = entry.read().value();  // only this process writes
  content.left = now();
  entry.write(content);
}

int OperationRecord::rank() const { return page_->rank; }
int OperationRecord::pid() const { return page_->pid; }

std::vector<OperationEntry> OperationRecord::read() const {
  std::vector<OperationEntry> entries;
  const std::uint64_t newest = page_->entered.load(std::memory_order_acquire);
  for (std::uint64_t back = 1; back <= std::min<std::uint64_t>(newest, kept); ++back) {
    const Page::Entry& entry = page_->entries[(newest - back) % kept];
    for (int attempt = 0; attempt < 100; ++attempt) {
      const auto content = entry.read();
      if (!content) continue;
      auto& copy = entries.emplace_back(OperationEntry{.group = get(content->group),
                                                       .operation = get(content->operation),
                                                       .who = get(content->who),
                                                       .sequence = content->sequence,
                                                       .bytes = content->bytes,
                                                       .entered = content->entered,
                                                       .left = std::nullopt});
      if (content->left != 0) copy.left = content->left;
      break;
    }
  }
  return entries;
}

std::string describe(const OperationEntry& entry, double now) {
  std::string message = entry.inside() ? "in " : "in no operation; its last was ";
  message += entry.operation;
  if (entry.sequence != 0) message += text(" ", entry.sequence);
  message += text(" of group ", entry.group, ", ", entry.bytes, " bytes, called by '", entry.who, "', ");
  return message +
         (entry.inside() ? "for " + seconds(now - entry.entered) : "left " + seconds(now - *entry.left) + " ago");
}

}  // namespace tessera::worker
