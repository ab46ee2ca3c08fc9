#pragma once

namespace tessera {

/// Tell the core that the calling thread waits in a loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace tessera
