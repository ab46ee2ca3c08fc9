// The transports in shared memory, with ranks that are threads of this process over one mapping. The ranks of a run are
// processes, whose accesses to each other's memory ThreadSanitizer cannot see; here it sees all of them.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "framework/base/error.h"
#include "framework/comm/byte_range.h"
#include "framework/comm/group_state.h"

namespace tessera::comm {
namespace {

using Kind = Collective::Kind;
using Floats = std::vector<float>;

/// A value that a rank contributes. Sums of some ranks are exact, so their order does not matter.
float element(std::size_t round, std::size_t rank, std::size_t i) {
  return static_cast<float>((round * 31 + rank * 7 + i) % 1009);
}
Floats values_of(std::size_t round, std::size_t rank, std::size_t count, std::size_t first = 0) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element(round, rank, first + i);
  return values;
}
float sum_at(std::size_t round, std::size_t ranks, std::size_t i) {
  float sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) sum += element(round, r, i);
  return sum;
}
std::span<std::byte> bytes(Floats& values) { return std::as_writable_bytes(std::span(values)); }

/// Runs `body` as every rank of a group at once and rethrows what one of them threw.
void as_ranks(std::size_t ranks, const std::function<void(const Communicator::State& group)>& body) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      std::vector<int> all(ranks);
      for (std::size_t i = 0; i < ranks; ++i) all[i] = static_cast<int>(i);
      Communicator::State group;
      group.set_members(std::move(all), static_cast<int>(r));
      try {
        body(group);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

void finish(Exchange& exchange) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!exchange.advance()) {
    must(std::chrono::steady_clock::now() < until, "every rank comes to every collective");
    std::this_thread::yield();
  }
}

/// One collective, the same on all ranks.
struct Round {
  Kind kind;
  std::size_t count, root;         ///< in floats
  std::vector<std::size_t> parts;  ///< all_to_all: bytes from rank f to rank t at f * ranks + t
};

std::vector<Round> drawn_rounds(std::mt19937& random, std::size_t ranks, std::size_t rounds) {
  constexpr Kind kinds[] = {Kind::barrier,    Kind::all_reduce, Kind::reduce_scatter,
                            Kind::all_gather, Kind::broadcast,  Kind::all_to_all};
  const auto size = [&]() -> std::size_t {
    switch (random() % 8) {
      case 0:
        return 0;
      case 1:
        return 260000 + random() % 300000;  // several turns: a slot holds 1 MiB
      case 2:
        return 4097 + random() % 20000;  // over the limit of short sums
      default:
        return random() % 700;
    }
  };
  std::vector<Round> all;
  for (std::size_t i = 0; i < rounds; ++i) {
    Round round{kinds[random() % std::size(kinds)], size(), random() % ranks, {}};
    if (round.kind == Kind::all_to_all)
      for (std::size_t k = 0; k < ranks * ranks; ++k) round.parts.push_back(size() * sizeof(float));
    all.push_back(std::move(round));
  }
  return all;
}

/// What a rank holds for a round, until it is done.
struct Operands {
  Operands(const Round& round, std::size_t number, std::size_t rank, std::size_t ranks) {
    switch (round.kind) {
      case Kind::all_reduce:
      case Kind::broadcast:
        values = values_of(number, rank, round.count);
        break;
      case Kind::reduce_scatter:
        input = values_of(number, rank, round.count * ranks);
        values.resize(round.count);
        break;
      case Kind::all_gather:
        input = values_of(number, rank, round.count);
        values.resize(round.count * ranks);
        break;
      case Kind::all_to_all: {
        for (std::size_t other = 0; other < ranks; ++other) {
          send.push_back(round.parts[rank * ranks + other]);
          receive.push_back(round.parts[other * ranks + rank]);
          const auto part = values_of(number, rank * ranks + other, send.back() / sizeof(float));
          input.insert(input.end(), part.begin(), part.end());
        }
        std::size_t all = 0;
        for (const auto part : receive) all += part;
        values.resize(all / sizeof(float));
        break;
      }
      default:
        break;
    }
    collective = {.kind = round.kind,
                  .input = bytes(input),
                  .values = bytes(values),
                  .root = static_cast<int>(round.root),
                  .send_bytes = send,
                  .receive_bytes = receive,
                  .name = {"test", number + 1, 0, "test"}};
  }

  void check(const Round& round, std::size_t number, std::size_t rank, std::size_t ranks) const {
    Floats expected;
    switch (round.kind) {
      case Kind::all_reduce:
      case Kind::reduce_scatter: {
        const std::size_t first = round.kind == Kind::all_reduce ? 0 : rank * round.count;
        for (std::size_t i = 0; i < round.count; ++i) expected.push_back(sum_at(number, ranks, first + i));
        break;
      }
      case Kind::broadcast:
        expected = values_of(number, round.root, round.count);
        break;
      case Kind::all_gather:
      case Kind::all_to_all:
        for (std::size_t other = 0; other < ranks; ++other) {
          const auto part = round.kind == Kind::all_gather
                                ? values_of(number, other, round.count)
                                : values_of(number, other * ranks + rank, receive[other] / sizeof(float));
          expected.insert(expected.end(), part.begin(), part.end());
        }
        break;
      default:
        break;
    }
    must(values == expected, "the result is that of the collective");
  }

  Floats input, values;
  std::vector<std::size_t> send, receive;
  Collective collective;
};

TEST(SharedSlots, CollectivesOfRandomKindsAndSizesGiveTheirResultsToEveryRank) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  for (const std::size_t ranks : {2, 3, 4}) {
    const auto rounds = drawn_rounds(random, ranks, 60);
    const auto memory =
        std::make_shared<const SharedMemory>(SharedMemory::create(slots_bytes(static_cast<int>(ranks))));
    const auto begun_together = 1 + random() % 3;
    EXPECT_NO_THROW(as_ranks(ranks,
                             [&](const Communicator::State& group) {
                               const auto exchange = exchange_in_slots(group, memory);
                               const auto rank = static_cast<std::size_t>(group.rank);
                               for (std::size_t first = 0; first < rounds.size(); first += begun_together) {
                                 std::deque<Operands> operands;
                                 for (std::size_t i = first; i < std::min(rounds.size(), first + begun_together); ++i)
                                   exchange->begin(operands.emplace_back(rounds[i], i, rank, ranks).collective);
                                 finish(*exchange);
                                 for (std::size_t i = 0; i < operands.size(); ++i)
                                   operands[i].check(rounds[first + i], first + i, rank, ranks);
                               }
                             }))
        << ranks << " ranks";
  }
}

TEST(SharedArrays, SumsAndGathersOfRandomRangesGiveTheirResultsToEveryRank) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  constexpr std::size_t count = 20000, rounds = 60, grain = 64;
  struct Range {
    Kind kind;
    std::size_t first, end;
  };
  for (const std::size_t ranks : {2, 3, 4}) {
    // Ranges of a round do not overlap and are begun together.
    std::vector<std::vector<Range>> all(rounds);
    for (auto& ranges : all) {
      constexpr Kind kinds[] = {Kind::all_reduce, Kind::sum_shards, Kind::gather_shards};
      for (std::size_t first = 0; first < count && ranges.size() < 3;) {
        const auto end = std::min(count, first + 1 + random() % 6000);
        ranges.push_back({kinds[random() % 3], first, end});
        first = (end + grain - 1) / grain * grain;
      }
    }
    std::vector<SharedMemory> memory;
    std::vector<std::byte*> arrays;
    for (std::size_t r = 0; r < ranks; ++r)
      arrays.push_back(memory.emplace_back(SharedMemory::create(array_header_bytes + count * sizeof(float))).data());
    EXPECT_NO_THROW(as_ranks(
        ranks,
        [&](const Communicator::State& group) {
          const auto exchange = exchange_in_arrays(group, arrays);
          const auto rank = static_cast<std::size_t>(group.rank);
          const std::span<float> own(reinterpret_cast<float*>(arrays[rank] + array_header_bytes), count);
          for (std::size_t round = 0; round < rounds; ++round) {
            for (const auto& [kind, first, end] : all[round]) {
              const auto range = own.subspan(first, end - first);
              const auto values = values_of(round, rank, range.size(), first);
              std::copy(values.begin(), values.end(), range.begin());
              exchange->begin({.kind = kind,
                               .values = std::as_writable_bytes(range),
                               .grain = grain * sizeof(float),
                               .name = {"test", round + 1, 0, "test"}});
            }
            finish(*exchange);
            for (const auto& [kind, first, end] : all[round])
              for (std::size_t r = 0; r < ranks; ++r) {
                const auto shard = shard_of({first * sizeof(float), (end - first) * sizeof(float)}, static_cast<int>(r),
                                            static_cast<int>(ranks), grain * sizeof(float));
                if (kind == Kind::sum_shards && r != rank) continue;
                for (auto i = shard.first / sizeof(float); i < shard.end() / sizeof(float); ++i)
                  must(own[i] == (kind == Kind::gather_shards ? element(round, r, i) : sum_at(round, ranks, i)),
                       "the result is that of the collective");
              }
          }
        }))
        << ranks << " ranks";
  }
}

}  // namespace
}  // namespace tessera::comm
