#pragma once

namespace tessera {

/// Calls access(argument), which reads memory-mapped file content. Returns true when the call has returned; false if a
/// page of the memory could not be read (SIGBUS), because the file was truncated after it was mapped or its disk
/// failed. Then `access` was left at that read by a long jump, so it must not own objects with destructors. `access`
/// must not throw. May be called from several threads; calls must not be nested. A SIGBUS outside of such a call is
/// handled by the signal action that was installed before the first call.
bool access_mapped(void (*access)(const void* argument), const void* argument);

/// Calls `access()` with the same rules and result.
template <class Access>
bool access_mapped(const Access& access) {
  return access_mapped([](const void* argument) { (*static_cast<const Access*>(argument))(); }, &access);
}

}  // namespace tessera
