#pragma once

namespace tessera {

/// Calls access(argument), which reads mapped memory. Returns false, with the access left in the middle, if a page of
/// the memory cannot be read (SIGBUS): the file was truncated after it was mapped, or its disk failed. `access` owns
/// nothing that has a destructor, and throws nothing. May be called from several threads; not nested. A SIGBUS outside
/// of such a call does what it did before.
bool access_mapped(void (*access)(const void* argument), const void* argument);

/// The same for a function object.
template <class Access>
bool access_mapped(const Access& access) {
  return access_mapped([](const void* argument) { (*static_cast<const Access*>(argument))(); }, &access);
}

}  // namespace tessera
