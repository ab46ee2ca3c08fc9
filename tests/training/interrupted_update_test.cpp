// Updates that are killed at any instruction and completed by another process, against undisturbed ones.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>

#include "framework/training/state/shared_state.h"
#include "tests/optim/made.h"
#include "tests/sanitized.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

/// Matrices, which some optimizers want as a whole, vectors, and a bias of experts, in 32 and 16 bits.
class SomeParameters final : public StandInModel {
 public:
  explicit SomeParameters(std::int64_t rows) {
    add("wide", ParameterRole::matrix, {rows, 48}, DType::bfloat16);
    add("embedding", ParameterRole::word_embedding, {40 * rows, 64}, DType::float32);
    add("gain", ParameterRole::norm_gain, {77}, DType::float32);
    add("high", ParameterRole::matrix, {96, 32}, DType::float32);
    add("bias", ParameterRole::expert_bias, {8}, DType::float32);
  }
  std::vector<std::size_t> groups() const { return {0, 0, 0, 0, 1}; }

 private:
  void add(const char* name, ParameterRole role, Shape shape, DType type) {
    declare(name, role, std::move(shape), nn::Init::normal(0.02)).type = type;
  }
};

/// What outlives the processes of one test: the state, its undo log, and how far it is.
class Segment {
 public:
  struct Progress {
    std::atomic<std::int64_t> committed, intended;
    std::atomic<int> undone;    ///< blocks and matrices that were found half changed
    std::atomic<bool> works;    ///< the present process has begun or continued its first step
    std::atomic<bool> damaged;  ///< an update found what the one before did not write
  };

  Segment(const StateLayout& layout, const resilience::UndoLog::Extents& undo)
      : undo_bytes_((resilience::UndoLog::bytes(undo) + 4095) / 4096 * 4096),
        sums_bytes_((resilience::StateSums::bytes(undo.pieces) + 4095) / 4096 * 4096),
        size_(4096 + undo_bytes_ + sums_bytes_ + layout.segment().bytes) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "the system has memory");
    data_ = static_cast<std::byte*>(at);
  }
  ~Segment() { munmap(data_, size_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Progress& progress() { return *reinterpret_cast<Progress*>(data_); }
  std::span<std::byte> undo() { return {data_ + 4096, undo_bytes_}; }
  std::span<std::byte> sums() { return {data_ + 4096 + undo_bytes_, sums_bytes_}; }
  std::span<std::byte> state() {
    const auto before = 4096 + undo_bytes_ + sums_bytes_;
    return {data_ + before, size_ - before};
  }

 private:
  std::size_t undo_bytes_, sums_bytes_, size_;
  std::byte* data_ = nullptr;
};

/// One optimizer, trained by processes that may be killed.
class Training {
 public:
  Training(const std::string& optimizer, std::int64_t rows, int threads, std::int64_t steps, bool undoes = true)
      : optimizer_(optim::made(optimizer)),
        model_(rows),
        threads_(threads),
        steps_(steps),
        undoes_(undoes),
        layout_(model_.parameters(), optimizer_.get()),
        segment_(layout_, undo_extents(layout_, *optimizer_)) {}

  /// In a process of its own, which is killed `microseconds` after it began to work; absent: it may end. Returns
  /// whether it ended by itself.
  bool run(std::optional<unsigned> microseconds) {
    segment_.progress().works = false;
    const auto child = fork();
    if (child == 0) {
      go_on();
      _exit(0);
    }
    int status = 0;
    if (microseconds) {
      while (!segment_.progress().works && waitpid(child, &status, WNOHANG) == 0) usleep(20);
      usleep(*microseconds);
      kill(child, SIGKILL);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  Segment& segment() { return segment_; }
  bool within_update() { return segment_.progress().intended.load() > segment_.progress().committed.load(); }
  /// All that must be equal after the last step: everything but the 16-bit weights is written by updates alone.
  bool equals(Training& other) {
    const auto own = segment_.state(), theirs = other.segment_.state();
    return own.size() == theirs.size() && std::memcmp(own.data(), theirs.data(), own.size()) == 0;
  }

 private:
  void go_on() {
    kernels::Threads threads(threads_);
    auto undo =
        undoes_ ? std::make_unique<resilience::UndoLog>(segment_.undo(), undo_extents(layout_, *optimizer_)) : nullptr;
    auto* log = undo.get();
    auto sums =
        undoes_ ? std::make_unique<resilience::StateSums>(segment_.sums(), undo_extents(layout_, *optimizer_).pieces)
                : nullptr;
    StateLayout layout(model_.parameters(), optimizer_.get());
    StateMemory memory(layout.segment(), segment_.state());
    SharedState state(std::move(layout), std::move(memory), optimizer_.get(), false, std::move(undo), std::move(sums));
    auto& progress = segment_.progress();
    const auto groups = model_.groups();
    if (progress.intended == 0) {
      state.initialise(threads, 5);
      state.updates().seal(threads);
    }
    progress.works = true;
    while (progress.committed < steps_) {
      const auto step = progress.committed + 1;
      std::array<optim::StepScalars, 2> scalars;
      for (auto& one : scalars) one = {.step = step, .lr = 0.01, .clip = 0.5, .weight_decay = 0.1};
      scalars[1].balances = true;
      if (progress.intended < step) {
        fill_gradients(threads, state.gradients(), step);
        state.updates().begin();
        progress.intended = step;
        state.update(threads, scalars, groups);
      } else if (undoes_) {
        state.complete_update(threads, scalars, groups);
        progress.undone += log->undone();
      } else {
        state.update(threads, scalars, groups);
      }
      progress.committed = step;
    }
    const auto none = resilience::Damage::none;
    progress.damaged = state.updates().noted_damage() != none || state.updates().damage(threads) != none;
    state.weights_changed();
  }

  static void fill_gradients(kernels::Threads& threads, std::span<float> gradients, std::int64_t step) {
    threads.parallel_for(gradients.size(), 4096, [&](std::size_t first, std::size_t last) {
      for (auto i = first; i < last; ++i)
        gradients[i] =
            static_cast<float>(static_cast<std::int64_t>(i * 7919 + static_cast<std::size_t>(step)) % 13 - 6);
    });
  }

  std::unique_ptr<optim::Optimizer> optimizer_;
  SomeParameters model_;
  int threads_;
  std::int64_t steps_;
  bool undoes_;
  StateLayout layout_;
  Segment segment_;
};

struct Torture {
  int kills = 0, within_update = 0, undone = 0;
  bool equal = false, damaged = false;
};

/// Kills at random moments until all steps are done; later ones if no step was done since the last, as on a machine
/// that is busy.
Torture torture(const std::string& optimizer, std::int64_t rows, int threads, bool undoes, std::mt19937& random) {
  constexpr std::int64_t steps = 60;
  Training plain(optimizer, rows, 1, steps), killed(optimizer, rows, threads, steps, undoes);
  must(plain.run({}), "nobody kills the undisturbed process");
  Torture result;
  const auto& committed = killed.segment().progress().committed;
  constexpr unsigned usual = 3000;
  for (unsigned latest = usual;;) {  // microseconds
    const auto before = committed.load();
    if (killed.run(std::uniform_int_distribution<unsigned>(0, latest)(random))) break;
    latest = committed == before ? latest + 500 : usual;
    ++result.kills;
    result.within_update += killed.within_update() ? 1 : 0;
  }
  result.undone = killed.segment().progress().undone;
  result.equal = killed.equals(plain);
  result.damaged = plain.segment().progress().damaged || killed.segment().progress().damaged;
  return result;
}

class InterruptedUpdate : public testing::TestWithParam<std::string> {};

TEST_P(InterruptedUpdate, IsCompletedToTheBit) {
  if (sanitized) GTEST_SKIP() << "processes that are killed and forked again: without sanitizers";
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  int within = 0;
  // When a kill comes is up to the machine: again until enough of them hit an update.
  for (int round = 0; round < 100 && within <= 5; ++round)
    for (const int threads : {1, 2, 4}) {
      const auto result = torture(GetParam(), 200, threads, true, random);
      EXPECT_TRUE(result.equal) << threads << " threads, seed " << seed;
      EXPECT_FALSE(result.damaged) << "a checksum was wrong: " << threads << " threads, seed " << seed;
      within += result.within_update;
      std::printf("%s, %d threads: %d kills, %d within an update, %d half-changed blocks undone\n", GetParam().c_str(),
                  threads, result.kills, result.within_update, result.undone);
    }
  EXPECT_GT(within, 5) << "too few kills hit an update to prove anything, seed " << seed;
}

std::vector<std::string> all_optimizers() {
  std::vector<std::string> all;
  for (const auto& [type, doc] : optim::optimizers().types()) all.push_back(type);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, InterruptedUpdate, testing::ValuesIn(all_optimizers()),
                         [](const auto& one) { return one.param; });

TEST(InterruptedUpdateControl, WithoutAnUndoLogNumbersAreWrong) {
  if (sanitized) GTEST_SKIP() << "processes that are killed and forked again: without sanitizers";
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  bool equal = true;  // also where no kill came between the first and the last write of an update
  for (int round = 0; round < 100 && equal; ++round) equal = torture("adamw", 200, 2, false, random).equal;
  EXPECT_FALSE(equal) << "seed " << seed;
}

}  // namespace
}  // namespace tessera::training
