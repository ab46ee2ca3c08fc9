#pragma once

namespace tessera {

/// Gives the calling thread a low priority: nice 10, and disk access only when no other process needs the disk, if the
/// system has such classes. So it mostly uses what other threads leave; where they leave nothing, it still gets a tenth
/// of a core; nice 19 would get a sixtieth, and whoever waits for the thread in the end would wait for all of its work.
/// Does nothing where the system refuses. Returns the number of the thread.
int run_in_background() noexcept;
/// Gives the thread with this number, a living one of this process, the priority of the calling thread again. Most
/// systems allow that only to privileged processes; then nothing changes.
void run_in_foreground(int thread) noexcept;

}  // namespace tessera
