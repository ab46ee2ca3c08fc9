#pragma once

namespace tessera {

/// Tells the processor that the calling thread is in a spin loop (x86 `pause`), which frees resources of the core.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace tessera
