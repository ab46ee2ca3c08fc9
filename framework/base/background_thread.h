#pragma once

namespace tessera {

/// Gives the calling thread the lowest priority: nice 19, and disk access only when no other process needs the disk, if
/// the system has such classes. So it uses only what other threads leave. Does nothing where the system refuses.
void run_in_background() noexcept;

}  // namespace tessera
