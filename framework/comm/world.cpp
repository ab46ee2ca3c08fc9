#include "framework/comm/world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string_view>

#include "framework/comm/group_state.h"
#include "framework/log/log.h"

namespace tessera::comm {
namespace {

const log::Logger logger("comm");

constexpr int arrival_tag = 1, departure_tag = 2;

/// A hash of a group's name and members (FNV-1a).
std::uint64_t fingerprint(const std::string& name, std::span<const int> ranks) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const char letter : name) mix(static_cast<unsigned char>(letter));
  for (const int rank : ranks) mix(static_cast<std::uint64_t>(rank) + 256);
  return hash;
}

/// Initializes MPI, if this process was launched.
std::shared_ptr<WorldState> start(Transport transport) {
  if (!is_launched()) return std::make_shared<WorldState>();
  const worker::LaunchLink launcher;
  int provided = 0, running = 0;
  MPI_Initialized(&running);
  must(running == 0, "a process has one World");
  launcher.joining();
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  auto state = std::make_shared<WorldState>(transport, MPI_COMM_WORLD);
  launcher.joined();
  return state;
}

/// Of the first `ranks` ranks of `whole`, this one among them.
std::shared_ptr<WorldState> part_of(const WorldState& whole, int ranks) {
  must(ranks > 0 && ranks <= whole.size && whole.rank < ranks, "a part of a world is made by its ranks");
  if (ranks == 1) return std::make_shared<WorldState>();
  MPI_Group all = MPI_GROUP_NULL, first = MPI_GROUP_NULL;
  int range[1][3] = {{0, ranks - 1, 1}};
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(whole.comm, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_range_incl(all, 1, range, &first), "MPI_Group_range_incl");
  check_mpi(MPI_Comm_create_group(whole.comm, first, first_meeting_tag, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&first);
  MPI_Group_free(&all);
  return std::make_shared<WorldState>(whole.transport, comm);
}

/// All members exchange messages, with a time-out, before any calls MPI_Comm_create_group: that call blocks inside MPI
/// forever if a member does not come.
void meet_members(const Communicator::State& group, const Operation& operation, const OperationName& name) {
  const std::uint64_t mark = fingerprint(group.name, group.world_ranks);
  // These messages use the world's communicator, so each group gets tags of its own.
  const auto tag = [mark](int turn) { return first_meeting_tag + static_cast<int>(mark % (1 << 24)) * 4 + turn; };
  Messages messages(group.world->comm, *group.world);
  const int leader = group.world_ranks.front();
  std::vector<std::uint64_t> marks(group.world_ranks.size(), mark);
  if (group.rank == 0) {
    for (std::size_t r = 1; r < marks.size(); ++r)
      messages.receive(std::as_writable_bytes(std::span(&marks[r], 1)), group.world_ranks[r], tag(arrival_tag));
    operation.wait(
        [&] { return messages.done(); }, [&] { return messages.moved(); },
        [&] {
          Missing members;
          for (const int world_rank : messages.missing())
            members.push_back(static_cast<int>(
                std::find(group.world_ranks.begin(), group.world_ranks.end(), world_rank) - group.world_ranks.begin()));
          return members;
        });
    for (std::size_t r = 1; r < marks.size(); ++r)
      messages.send(std::as_bytes(std::span(&mark, 1)), group.world_ranks[r], tag(departure_tag));
  } else {
    messages.send(std::as_bytes(std::span(&mark, 1)), leader, tag(arrival_tag));
    messages.receive(std::as_writable_bytes(std::span(&marks[0], 1)), leader, tag(departure_tag));
  }
  operation.wait([&] { return messages.done(); }, [&] { return messages.moved(); }, [] { return Missing{0}; });
  for (const std::uint64_t other : marks)
    if (other != mark) throw CommError(text(describe(group, name), ": the members name different ranks"));
}

/// Creates the group's MPI communicator.
void create_comm(Communicator::State& group) {
  const OperationName name = {"group", 0, 0, group.name};
  const Operation operation(group, name);
  meet_members(group, operation, name);
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(group.world->comm, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, group.size(), group.world_ranks.data(), &members), "MPI_Group_incl");
  const int tag = static_cast<int>(fingerprint(group.name, group.world_ranks) % (1 << 20));
  check_mpi(MPI_Comm_create_group(group.world->comm, members, tag, &group.comm), "MPI_Comm_create_group");
  MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
}

/// Creates what is missing of the group's communicator and chooses its transport.
void open_group(Communicator::State& group) {
  if (group.comm == MPI_COMM_NULL) create_comm(group);
  group.exchange = exchange_by_messages(group, collectives_tag);
  bool one_host = true;
  for (const int other : group.others()) one_host = one_host && group.peer(other).here;
  if (group.world->transport == Transport::messages || !one_host) return;
  auto faster = exchange_in_slots(group);
  group.shares_memory = faster != nullptr;
  if (faster) group.exchange = std::move(faster);
  if (group.shares_memory) group.world->message_bytes += message_bytes_of_member();
  logger.debug(
      text("group ", group.name, " of ", group.size(), " ranks: ", group.shares_memory ? "shared memory" : "messages"));
  group.sequence = 0;  // numbers count the collectives of the group's users
}

}  // namespace

bool is_launched() {
  // Set by Open MPI's mpirun, by PMIx and by PMI-1/2 (srun) for the processes they start.
  constexpr std::array<const char*, 3> given = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(given.begin(), given.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

World::World(Transport transport) : World(start(transport)) {}

World::World(const World& whole, int ranks) : World(part_of(*whole.state_, ranks)) {}

World::World(std::shared_ptr<WorldState> world_state) : state_(std::move(world_state)) {
  auto state = std::make_shared<Communicator::State>();
  state->name = "world";
  state->world = state_;
  std::vector<int> all(static_cast<std::size_t>(state_->size));
  std::iota(all.begin(), all.end(), 0);
  state->set_members(std::move(all), state_->rank);
  if (state_->size > 1) {
    state->comm = state_->comm;
    open_group(*state);
  }
  all_ = Communicator(std::move(state));
}

// MPI_Finalize waits for all ranks without a time-out, so a barrier with one comes first.
World::~World() {
  if (!state_->mpi) return;
  bool together = std::uncaught_exceptions() == 0;
  if (together) {
    try {
      all_.barrier("end of the run");
    } catch (const Error& error) {
      logger.error(error.what());
      together = false;
    }
  }
  if (state_->comm != MPI_COMM_WORLD) return;
  if (together) {
    MPI_Finalize();
    state_->launcher.done();
  }
  state_->mpi = false;
}

int World::local_rank() const { return state_->local_rank; }
int World::local_size() const { return state_->local_size; }
const std::string& World::host() const { return state_->peers[static_cast<std::size_t>(state_->rank)].host; }
void World::set_time_out(std::chrono::milliseconds time) const { state_->time_out = time; }

// Not exit(): static destructors could block in MPI or wait for threads. Under tsrun the launcher stops the others,
// with a better report than MPI_Abort gives.
void World::leave(int exit_code) const noexcept {
  std::fflush(nullptr);
  if (exit_code == 0) state_->launcher.done();
  if (state_->mpi && state_->size > 1 && !state_->launcher.present()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

void abort_all_ranks(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

Communicator World::group(const std::string& name, std::span<const int> world_ranks) const {
  auto state = std::make_shared<Communicator::State>();
  state->name = name;
  state->world = state_;
  const auto own = std::find(world_ranks.begin(), world_ranks.end(), rank());
  must(own != world_ranks.end(), "a group is made by its members");
  for (const int other : world_ranks) must(other >= 0 && other < size(), "members of a group are ranks of the world");
  state->set_members({world_ranks.begin(), world_ranks.end()}, static_cast<int>(own - world_ranks.begin()));
  if (state->size() > 1) open_group(*state);
  return Communicator(std::move(state));
}

std::string describe_mpi() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> words{};
  int size = 0;
  MPI_Get_library_version(words.data(), &size);
  const std::string all(words.data(), static_cast<std::size_t>(size));
  return all.substr(0, all.find(','));
}

void check_promised_size(int processes) {
  struct Promise {
    const char *variable, *advice;
  };
  constexpr std::array<Promise, 3> promises = {
      Promise{"WORLD_SIZE", "start it with tsrun, which takes torchrun's options, or unset the variable"},
      Promise{"RANK_SIZE", "start it with tsrun, which takes msrun's options, or unset the variable"},
      Promise{"SLURM_STEP_NUM_TASKS", "give srun --mpi=pmix, or start it with tsrun or mpirun"}};
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  for (const auto& [variable, advice] : promises) {
    const char* given = std::getenv(variable);
    const bool of_slurm = std::string_view(variable).rfind("SLURM", 0) == 0;
    if (!given || (of_slurm && by_mpirun)) continue;  // under mpirun it counts mpirun's daemons
    if (std::to_string(processes) != given)
      throw ConfigError(text(variable, " is ", given, ", but the MPI job has ", processes,
                             processes == 1 ? " process" : " processes", "; ", advice));
  }
}

}  // namespace tessera::comm
