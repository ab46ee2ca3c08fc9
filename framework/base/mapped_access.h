#pragma once

#include <cstddef>
#include <filesystem>

namespace tessera {

/// Calls access(argument), which reads memory-mapped file content. Returns true when the call has returned; false if a
/// page of the memory could not be read (SIGBUS), because the file was truncated after it was mapped or its disk
/// failed. Then `access` was left at that read by a long jump, so it must not own objects with destructors. `access`
/// must not throw. May be called from several threads; calls must not be nested. A SIGBUS outside of such a call is
/// handled by the GuardedMapping that has the address; if there is none, by the signal action that was installed before
/// the first call.
bool access_mapped(void (*access)(const void* argument), const void* argument);

/// Calls `access()` with the same rules and result.
template <class Access>
bool access_mapped(const Access& access) {
  return access_mapped([](const void* argument) { (*static_cast<const Access*>(argument))(); }, &access);
}

/// Registers memory that maps a file, so that reading a page that cannot be loaded does not end the process: that page
/// and all behind it in this memory become zeros, and lost_pages() returns true. Whoever uses what was read asks first
/// and reports the loss; take_unreported_loss() is for losses that nobody asked about. Does not own the memory; to be
/// destroyed before the memory is unmapped. Thread-safe.
class GuardedMapping {
 public:
  /// Guards nothing.
  GuardedMapping() = default;
  GuardedMapping(const void* memory, std::size_t bytes, const std::filesystem::path& file);
  GuardedMapping(GuardedMapping&& other) noexcept;
  GuardedMapping& operator=(GuardedMapping&& other) noexcept;
  ~GuardedMapping();

  /// Whether pages were lost. If so, the loss counts as reported from now on.
  bool lost_pages() const;
  struct Record;

 private:
  Record* record_ = nullptr;
};

/// The file of a guarded mapping of this process, which may be destroyed by now, that lost pages without a report; the
/// loss counts as reported from now on. Empty: there is none.
std::filesystem::path take_unreported_loss();

}  // namespace tessera
