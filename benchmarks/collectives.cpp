// What do sums over processes cost, and what would they cost otherwise? Started as
//
//   mpirun -n 2 bench_collectives [--megabytes 500] [--messages] [--seconds 2]
//
// Our sums are compared, in the same run, with a bare sum over arrays that lie in memory which all processes share
// (each sums its part of them and writes it to all), with MPI_Allreduce in one call and in pieces, and with MPI's
// gather.
// --messages: our bytes travel as messages; with `--mca btl self,tcp` they and MPI's go through TCP.
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "benchmarks/report.h"
#include "framework/comm/group_buffer.h"
#include "framework/comm/world.h"

namespace tessera {
namespace {

struct Settings {
  std::size_t bytes = 500'000'000;
  double seconds = 2;
  Transport transport = Transport::fastest;
};

/// Seconds of `body` for the slowest rank, median over repetitions that all do alike.
double measure(const World& world, const Settings& settings, const std::function<void()>& body) {
  std::vector<double> taken;
  double total = 0;
  for (int i = -1; i < 3 || (total < settings.seconds && i < 1000); ++i) {
    world.all().barrier("benchmark");
    const double begin = seconds_on(Clock::wall);
    body();
    float seconds = static_cast<float>(seconds_on(Clock::wall) - begin);
    world.all().all_reduce_max({&seconds, 1}, "benchmark");
    if (i < 0) continue;  // warms up
    taken.push_back(seconds);
    total += seconds;
  }
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

void print(const World& world, const char* what, double seconds, double best, std::size_t bytes) {
  if (world.rank() == 0)
    std::printf("  %-52s %9.3f ms  %6.2f GB/s  %5.2f\n", what, 1e3 * seconds,
                1e-9 * static_cast<double>(bytes) / seconds, seconds / best);
}

/// The yardstick: arrays in a window that MPI shares, a part summed by each, written to all, and a barrier of counters.
class BareSum {
 public:
  BareSum(const World& world, std::size_t bytes) : rank_(world.rank()), size_(world.size()), count_(bytes / 4) {
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

double mpi_sum_in_pieces(const World& world, const Settings& settings, std::vector<float>& values, std::size_t piece) {
  return measure(world, settings, [&] {
    for (std::size_t first = 0; first < values.size(); first += piece)
      MPI_Allreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(std::min(piece, values.size() - first)),
                    MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
}

void compare_sums(const World& world, const Settings& settings) {
  const Communicator& all = world.all();
  double best_mpi = 1e30;
  if (world.rank() == 0)
    std::printf("sum of %zu bytes on every rank, known to all: time, bytes of one array per second, ratio\n",
                settings.bytes);
  double bare = 0;
  if (world.local_size() == world.size()) {
    BareSum window(world, settings.bytes);
    bare = measure(world, settings, [&] { window.sum(); });
    print(world, "bare sum over a shared window (1 = this)", bare, bare, settings.bytes);
  }
  std::vector<double> mpi;
  const std::vector<std::pair<const char*, std::size_t>> ways = {{"MPI_Allreduce in one call", ~std::size_t{0} >> 8},
                                                                 {"MPI_Allreduce in pieces of 1 MB", 1 << 18},
                                                                 {"MPI_Allreduce in pieces of 4 MB", 1 << 20},
                                                                 {"MPI_Allreduce in pieces of 16 MB", 1 << 22}};
  std::vector<float> values(settings.bytes / 4, 0.F);
  for (const auto& way : ways) {
    mpi.push_back(mpi_sum_in_pieces(world, settings, values, std::min(way.second, values.size())));
    best_mpi = std::min(best_mpi, mpi.back());
  }
  const double unit = bare > 0 ? bare : best_mpi;
  for (std::size_t i = 0; i < ways.size(); ++i) print(world, ways[i].first, mpi[i], unit, settings.bytes);
  const double plain = measure(world, settings, [&] { all.all_reduce(values, "benchmark"); });
  print(world, "Communicator::all_reduce of own memory", plain, unit, settings.bytes);
  values = {};
  GroupBuffer buffer(all, settings.bytes);
  std::memset(buffer.bytes().data(), 0, buffer.bytes().size());
  const ByteRange whole = {0, settings.bytes / 4 * 4};
  const double shared = measure(world, settings, [&] {
    buffer.begin_sum(whole, true, "benchmark");
    buffer.finish();
  });
  print(world, "GroupBuffer, sum everywhere", shared, unit, settings.bytes);
  const double shares = measure(world, settings, [&] {
    buffer.begin_sum(whole, false, "benchmark");
    buffer.finish();
  });
  print(world, "GroupBuffer, sum of the own share", shares, unit, settings.bytes);
  const double gather = measure(world, settings, [&] {
    buffer.begin_gather(whole, "benchmark");
    buffer.finish();
  });
  print(world, "GroupBuffer, gather of the shares", gather, unit, settings.bytes);
  if (world.rank() != 0) return;
  if (bare > 0) std::printf("  our sum takes %.2f x the bare sum\n", shared / bare);
  std::printf("  our sum takes %.2f x (buffer) and %.2f x (own memory) the best of MPI's\n\n", shared / best_mpi,
              plain / best_mpi);
}

/// The sizes that tensor parallelism sends, twice in each layer.
void compare_small(const World& world, const Settings& settings) {
  if (world.rank() == 0)
    std::printf("%-12s %14s %14s %14s %14s %14s %14s\n", "us", "all_reduce", "MPI_Allreduce", "all_gather",
                "MPI_Allgather", "reduce_scatter", "Reduce_scatter");
  Settings few = settings;
  few.seconds = std::min(settings.seconds, 0.2);
  for (const std::size_t bytes : {8UL, 4096UL, 65536UL, 262144UL, 1UL << 20, 4UL << 20}) {
    const std::size_t part = std::max<std::size_t>(4, bytes / static_cast<std::size_t>(world.size()) / 4 * 4);
    std::vector<float> whole(part / 4 * static_cast<std::size_t>(world.size())), mine(part / 4);
    const auto all_bytes = std::as_writable_bytes(std::span(whole)),
               own_bytes = std::as_writable_bytes(std::span(mine));
    const int repeats = bytes <= 65536 ? 20 : 4, count = static_cast<int>(whole.size()),
              piece = static_cast<int>(mine.size());
    const auto take = [&](const std::function<void()>& once) {
      return 1e6 / repeats * measure(world, few, [&] {
               for (int i = 0; i < repeats; ++i) once();
             });
    };
    const std::vector<int> counts(static_cast<std::size_t>(world.size()), piece);
    const double times[] = {
        take([&] { world.all().all_reduce(whole, "benchmark"); }),
        take([&] { MPI_Allreduce(MPI_IN_PLACE, whole.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }),
        take([&] { world.all().all_gather(own_bytes, all_bytes, "benchmark"); }),
        take([&] { MPI_Allgather(mine.data(), piece, MPI_FLOAT, whole.data(), piece, MPI_FLOAT, MPI_COMM_WORLD); }),
        take([&] { world.all().reduce_scatter(all_bytes, own_bytes, DType::float32, "benchmark"); }),
        take(
            [&] { MPI_Reduce_scatter(whole.data(), mine.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); })};
    if (world.rank() != 0) continue;
    std::printf("%-12zu", bytes);
    for (const double time : times) std::printf(" %14.1f", time);
    std::printf("\n");
  }
}

int run(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--messages") settings.transport = Transport::messages;
    if (word == "--megabytes" && i + 1 < argc) settings.bytes = 1'000'000 * std::stoul(argv[i + 1]) / 4 * 4;
    if (word == "--seconds" && i + 1 < argc) settings.seconds = std::stod(argv[i + 1]);
  }
  const World world(settings.transport);
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
