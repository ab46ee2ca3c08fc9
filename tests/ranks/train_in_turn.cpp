// Trains recipes one after the other in one MPI job, because most of the processor time of a test's small run is the
// start of its processes:
//
//   mpirun -n 8 train_in_turn
//
// Each line on the standard input of rank 0, "4 run.yaml", trains that recipe on the first 4 ranks as `tessera train`
// does; words that follow, after tabs, are those of --set. The answer is a line "done run.yaml". Ends at the end of the
// input. If a run fails, rank 0 or the rank that failed says why on stderr, and the job ends with an exit code other
// than 0.
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/standard_output.h"
#include "framework/cli/run.h"
#include "framework/cli/train.h"
#include "framework/comm/world.h"

namespace tessera {
namespace {

/// Returns false if the run ended with another exit code than 0.
bool train(const comm::World& world, const cli::RecipeArguments& arguments, const cli::CommandContext& context) {
  const training::StopSignal stop;
  const auto end = cli::train_on(world, arguments, context, stop);
  if (end.exit_code != 0) std::cerr << arguments.file << ": " << end.last_line << std::endl;
  return end.exit_code == 0;
}

/// The next line of rank 0's standard input, on all ranks; empty at its end. Ranks without work would use a third of
/// the processors while they poll for a message; so a byte of a file announces each line.
std::string next_line(const comm::World& world) {
  static const std::string announced = "train_in_turn.lines";
  static std::uintmax_t count = 0;
  ++count;
  std::string line;
  if (world.rank() == 0) {
    std::getline(std::cin, line);
    std::ofstream(announced, std::ios::app) << '.';
  }
  std::error_code absent;
  const auto lines = [&] {
    const auto size = std::filesystem::file_size(announced, absent);
    return absent ? 0 : size;
  };
  while (lines() < count) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return world.all().all_gather(line, "the next run").front();
}

int train_in_turn(int argc, char** argv) {
  StandardOutput output;
  cli::CommandContext context{{}, output, {argv, argv + argc}};
  cli::add_interop(context.registries);
  const comm::World world;
  world.set_time_out(std::chrono::milliseconds::zero());  // a test may wait long before the next run
  try {
    for (std::string line; !(line = next_line(world)).empty();) {
      std::istringstream words(line);
      int ranks = 0;
      cli::RecipeArguments arguments;
      words >> ranks >> arguments.file >> std::ws;
      for (std::string set; std::getline(words, set, '\t');) arguments.sets.push_back(set);
      if (world.rank() >= ranks) continue;
      if (!train(comm::World(world, ranks), arguments, context)) world.leave(1);
      if (world.rank() == 0) std::cout << "done " << arguments.file << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "rank " << world.rank() << ": " << error.what() << std::endl;
    world.leave(1);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::train_in_turn(argc, argv); }
