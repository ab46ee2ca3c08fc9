// A worker for the tests of tsrun: meets the others, sums numbers with them for some steps, and misbehaves on demand.
//
//   launch_worker STEPS [MISCHIEF RANK]
//   launch_worker STEPS until FILE
//
// "until": all end after the step in which FILE exists, but no later than after STEPS; they also print how many.
// MISCHIEF is what rank RANK does: "late" never comes to the others, "absent" stays away from step 3, "exit" ends with
// code 7 in step 3, "refuse" ends with code 2 at once, "early" ends with code 0 in step 3. A step takes 10 ms; the
// time-out of operations is 2 s. Each rank says when its first step is done: then all have connected to each other.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "framework/comm/world.h"
#include "framework/worker/launch_link.h"

namespace tessera {
namespace {

int work(int steps, const std::string& mischief, int culprit, const std::string& until) {
  const worker::LaunchLink launcher;
  const char* given = std::getenv("RANK_ID");
  const bool guilty = given != nullptr && std::atoi(given) == culprit;
  if (guilty && mischief == "refuse") {
    std::cout << "recipe.yaml:3: this is wrong" << std::endl;
    return 2;
  }
  if (guilty && mischief == "late") std::this_thread::sleep_for(std::chrono::hours(1));
  const comm::World world;
  world.set_time_out(std::chrono::seconds(2));
  double sum = 0;
  std::string ended;
  for (int step = 1; step <= steps; step++) {
    launcher.report(text("dp ", world.rank(), ", iteration ", step));
    if (guilty && step == 3 && mischief == "absent") std::this_thread::sleep_for(std::chrono::hours(1));
    if (guilty && step == 3 && mischief == "exit") std::_Exit(7);
    if (guilty && step == 3 && mischief == "early") std::_Exit(0);
    const bool ends = !until.empty() && std::filesystem::exists(until);
    std::array<double, 2> values = {static_cast<double>(world.rank() + step), ends ? 1.0 : 0.0};
    world.all().all_reduce(std::span(values), "test");
    sum += values[0];
    if (step == 1) std::cout << "the first step is done" << std::endl;
    if (values[1] > 0 || (!until.empty() && step == steps)) {
      ended = text(" after ", step, " steps");
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::cout << "rank " << world.rank() << " of " << world.size() << ": sum " << sum << ended << std::endl;
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  try {
    const std::string how = argc > 3 ? argv[2] : "";
    if (how == "until") return tessera::work(std::atoi(argv[1]), "", -1, argv[3]);
    return tessera::work(std::atoi(argv[1]), how, argc > 3 ? std::atoi(argv[3]) : -1, "");
  } catch (const tessera::CommError& error) {
    std::cout << error.what() << std::endl;
    tessera::worker::LaunchLink().failed(error.what(), true);
    std::_Exit(1);
  }
}
