// What does all-reduce cost, compared with other methods? Start it with
//
//   mpirun -n 2 bench_collectives [--megabytes 500] [--messages] [--seconds 2]
//
// Tessera's collectives are compared, in the same run, with a plain summation over arrays in shared memory (each rank
// sums its shard and writes it to all arrays), with MPI_Allreduce in one call and in pieces, and with MPI's other
// collectives. --messages: Tessera uses MPI messages instead of shared memory; with `--mca btl self,tcp` all data goes
// through TCP.
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "benchmarks/report.h"
#include "framework/comm/group_buffer.h"
#include "framework/comm/world.h"

namespace tessera {
namespace {

struct Settings {
  std::size_t bytes = 500'000'000;
  double seconds = 2;
  comm::Transport transport = comm::Transport::fastest;
};

struct Way {
  std::string name;
  std::function<void()> body;
  double seconds = 0;  ///< of the slowest rank, median
};

/// Measures all methods in alternation, so that other load on the machine affects them equally. `prepare` is called
/// before each and is not timed.
void measure(const comm::World& world, const Settings& settings, std::vector<Way>& ways,
             const std::function<void()>& prepare) {
  std::vector<std::vector<float>> taken(ways.size());
  double total = 0;
  const double most = settings.seconds * static_cast<double>(ways.size());
  for (int i = -1; i < 5 || (total < most && i < 2000); ++i) {
    std::vector<float> seconds(ways.size());
    for (std::size_t w = 0; w < ways.size(); ++w) {
      prepare();
      world.all().barrier("benchmark");
      const double begin = seconds_on(Clock::wall);
      ways[w].body();
      seconds[w] = static_cast<float>(seconds_on(Clock::wall) - begin);
    }
    world.all().all_reduce_max(seconds, "benchmark");
    if (i < 0) continue;  // warm-up
    for (std::size_t w = 0; w < ways.size(); ++w) {
      taken[w].push_back(seconds[w]);
      total += seconds[w];
    }
  }
  for (std::size_t w = 0; w < ways.size(); ++w) {
    std::sort(taken[w].begin(), taken[w].end());
    ways[w].seconds = taken[w][taken[w].size() / 2];
  }
}

/// The reference: arrays in an MPI shared-memory window; each rank sums its shard and writes it to all arrays; a
/// barrier of counters.
class BareSum {
 public:
  BareSum(const comm::World& world, std::size_t bytes) : rank_(world.rank()), size_(world.size()), count_(bytes / 4) {
    char* own = nullptr;
    const std::size_t room = 4096 + (bytes + 4095) / 4096 * 4096;
    MPI_Win_allocate_shared(static_cast<MPI_Aint>(room), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window_);
    for (int r = 0; r < size_; ++r) {
      MPI_Aint length = 0;
      int unit = 0;
      char* theirs = nullptr;
      MPI_Win_shared_query(window_, r, &length, &unit, &theirs);
      counters_.push_back(reinterpret_cast<std::atomic<long>*>(theirs));
      arrays_.push_back(reinterpret_cast<float*>(theirs + 4096));
    }
    std::memset(own, 0, room);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~BareSum() { MPI_Win_free(&window_); }
  BareSum(const BareSum&) = delete;
  BareSum& operator=(const BareSum&) = delete;

  void sum() {
    meet();
    const std::size_t first = count_ * static_cast<std::size_t>(rank_) / static_cast<std::size_t>(size_),
                      last = count_ * static_cast<std::size_t>(rank_ + 1) / static_cast<std::size_t>(size_);
    if (size_ == 2) {
      float *a = arrays_[0], *b = arrays_[1];
      for (std::size_t i = first; i < last; ++i) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
      }
    } else {
      constexpr std::size_t block = 1024;
      float sums[block];
      for (std::size_t begin = first; begin < last; begin += block) {
        const std::size_t here = std::min(block, last - begin);
        std::copy_n(arrays_[0] + begin, here, sums);
        for (std::size_t r = 1; r < arrays_.size(); ++r)
          for (std::size_t i = 0; i < here; ++i) sums[i] += arrays_[r][begin + i];
        for (float* const array : arrays_) std::copy_n(sums, here, array + begin);
      }
    }
    meet();
  }

 private:
  void meet() {
    const long turn = counters_[static_cast<std::size_t>(rank_)]->fetch_add(1) + 1;
    for (const std::atomic<long>* counter : counters_)
      for (int spins = 0; counter->load(std::memory_order_acquire) < turn; ++spins)
        if (spins > 200) ::sched_yield();
  }

  int rank_, size_;
  std::size_t count_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::atomic<long>*> counters_;
  std::vector<float*> arrays_;
};

void mpi_sum(std::vector<float>& values, std::size_t piece) {
  for (std::size_t first = 0; first < values.size(); first += piece)
    MPI_Allreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(std::min(piece, values.size() - first)),
                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void compare_sums(const comm::World& world, const Settings& settings) {
  std::vector<float> values(settings.bytes / 4, 0.F);
  comm::GroupBuffer buffer(world.all(), settings.bytes);
  std::memset(buffer.bytes().data(), 0, buffer.bytes().size());
  std::unique_ptr<BareSum> window;
  if (world.local_size() == world.size()) window = std::make_unique<BareSum>(world, settings.bytes);

  const auto buffered = [&](bool sum, bool everywhere) {
    if (sum)
      buffer.begin_sum({0, settings.bytes}, everywhere, "benchmark");
    else
      buffer.begin_gather({0, settings.bytes}, sizeof(float), "benchmark");
    buffer.finish();
  };
  std::vector<Way> ways = {
      {"GroupBuffer, sum everywhere", [&] { buffered(true, true); }},
      {"Communicator::all_reduce of own memory", [&] { world.all().all_reduce(values, "benchmark"); }},
      {"GroupBuffer, sum of the own share", [&] { buffered(true, false); }},
      {"GroupBuffer, gather of the shares", [&] { buffered(false, true); }},
      {"MPI_Allreduce in one call", [&] { mpi_sum(values, values.size()); }},
      {"MPI_Allreduce in pieces of 1 MB", [&] { mpi_sum(values, std::size_t{1} << 18); }},
      {"MPI_Allreduce in pieces of 4 MB", [&] { mpi_sum(values, std::size_t{1} << 20); }},
      {"MPI_Allreduce in pieces of 16 MB", [&] { mpi_sum(values, std::size_t{1} << 22); }}};
  if (window) ways.push_back({"bare sum over a shared window", [&] { window->sum(); }});
  measure(world, settings, ways, [] {});
  if (world.rank() != 0) return;
  double best = ways[4].seconds;
  for (std::size_t w = 5; w < 8; ++w) best = std::min(best, ways[w].seconds);
  std::printf("%-48s %12s %10s\n", text("sum of ", settings.bytes, " bytes on every rank").c_str(), "ms", "GB/s");
  for (const Way& way : ways)
    std::printf("  %-46s %12.3f %10.2f\n", way.name.c_str(), 1e3 * way.seconds,
                1e-9 * static_cast<double>(settings.bytes) / way.seconds);
  std::printf("  ratio to the best of MPI_Allreduce: %.2f buffer, %.2f own memory\n", ways[0].seconds / best,
              ways[1].seconds / best);
  if (window)
    std::printf("  ratio to the bare sum:              %.2f buffer, %.2f own memory\n",
                ways[0].seconds / ways.back().seconds, ways[1].seconds / ways.back().seconds);
}

/// One collective of ours and MPI's, alternately.
struct Pair {
  const char* name;
  std::function<void()> ours, mpi;
};

/// The sizes that tensor parallelism all-reduces twice in each layer. Every rank rewrites its values before each call,
/// as a layer does. MPI's sums may use any order.
void compare_small(const comm::World& world, const Settings& settings) {
  if (world.rank() == 0) std::printf("\n%-16s %10s %12s %12s %8s\n", "", "bytes", "ours, us", "MPI, us", "ratio");
  Settings few = settings;
  few.seconds = std::min(settings.seconds, 0.2);
  const auto members = static_cast<std::size_t>(world.size());
  for (const std::size_t bytes : {8UL, 4096UL, 65536UL, 262144UL, 1UL << 20, 4UL << 20, 16UL << 20}) {
    const std::size_t part = std::max<std::size_t>(1, bytes / members / 4);
    std::vector<float> whole(part * members), mine(part), received(part * members);
    const auto all_bytes = std::as_writable_bytes(std::span(whole)),
               own_bytes = std::as_writable_bytes(std::span(mine)),
               received_bytes = std::as_writable_bytes(std::span(received));
    const int count = static_cast<int>(whole.size()), piece = static_cast<int>(part);
    const std::vector<int> counts(members, piece);
    std::vector<int> begins(members);
    for (std::size_t r = 0; r < members; ++r) begins[r] = static_cast<int>(r) * piece;
    const std::vector<std::size_t> sizes(members, part * sizeof(float));
    const comm::Communicator& all = world.all();
    const std::vector<Pair> pairs = {
        {"all_reduce", [&] { all.all_reduce(whole, "benchmark"); },
         [&] { MPI_Allreduce(MPI_IN_PLACE, whole.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"all_gather", [&] { all.all_gather(own_bytes, all_bytes, "benchmark"); },
         [&] { MPI_Allgather(mine.data(), piece, MPI_FLOAT, whole.data(), piece, MPI_FLOAT, MPI_COMM_WORLD); }},
        {"reduce_scatter", [&] { all.reduce_scatter(all_bytes, own_bytes, DType::float32, "benchmark"); },
         [&] { MPI_Reduce_scatter(whole.data(), mine.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"broadcast", [&] { all.broadcast(all_bytes, 0, "benchmark"); },
         [&] { MPI_Bcast(whole.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); }},
        {"all_to_all", [&] { all.all_to_all(all_bytes, sizes, received_bytes, sizes, "benchmark"); },
         [&] {
           MPI_Alltoallv(whole.data(), counts.data(), begins.data(), MPI_FLOAT, received.data(), counts.data(),
                         begins.data(), MPI_FLOAT, MPI_COMM_WORLD);
         }}};
    std::vector<Way> ways;
    for (const Pair& pair : pairs) {
      ways.push_back({"", pair.ours});
      ways.push_back({"", pair.mpi});
    }
    measure(world, few, ways, [&] {
      std::fill(whole.begin(), whole.end(), 1.F);
      std::fill(mine.begin(), mine.end(), 1.F);
    });
    if (world.rank() != 0) continue;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const double ours = ways[2 * i].seconds, theirs = ways[2 * i + 1].seconds;
      std::printf("%-16s %10zu %12.1f %12.1f %8.2f\n", pairs[i].name, bytes, 1e6 * ours, 1e6 * theirs, ours / theirs);
    }
  }
}

int run(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--messages") settings.transport = comm::Transport::messages;
    if (word == "--megabytes" && i + 1 < argc) settings.bytes = 1'000'000 * std::stoul(argv[i + 1]) / 4 * 4;
    if (word == "--seconds" && i + 1 < argc) settings.seconds = std::stod(argv[i + 1]);
  }
  const comm::World world(settings.transport);
  if (world.size() < 2) {
    std::fprintf(stderr, "start it on two ranks at least: mpirun -n 2 bench_collectives\n");
    return 2;
  }
  if (world.rank() == 0) {
    print_head("What do sums over processes cost, and what would they cost otherwise?", 1);
    std::printf("%d ranks, %d on this host; our bytes travel %s\n\n", world.size(), world.local_size(),
                world.all().on_one_host() ? "through shared memory" : "as messages");
  }
  compare_sums(world, settings);
  compare_small(world, settings);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
