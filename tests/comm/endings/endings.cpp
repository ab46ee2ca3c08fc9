// Ends in one of the ways that a run may end, on rank 1, while the others wait for it: the test looks at mpirun.
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "framework/comm/group_buffer.h"
#include "framework/comm/world.h"

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  try {
    const tessera::comm::World world;
    tessera::comm::GroupBuffer buffer(world.all(), 1 << 20);
    world.all().barrier("all are here");
    if (world.size() < 2) return 2;
    if (world.rank() == 1) {
      std::printf("rank 1 ends by %s\n", how.c_str());
      if (how == "leave") world.leave(7);
      if (how == "exception") throw std::runtime_error("something else went wrong");
      if (how == "kill") std::raise(SIGKILL);
    }
    world.all().barrier("the end");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 9;
  }
  return how == "well" ? 0 : 8;
}
