#pragma once

namespace tessera {

/// Gives the calling thread the lowest priority: nice 19, and disk access only when no other process needs the disk, if
/// the system has such classes. So it uses only what other threads leave. Does nothing where the system refuses.
/// Returns the number of the thread.
int run_in_background() noexcept;
/// Gives the thread with this number, a living one of this process, the priority of the calling thread again. Most
/// systems allow that only to privileged processes; then nothing changes.
void run_in_foreground(int thread) noexcept;

}  // namespace tessera
