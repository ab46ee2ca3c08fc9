#include "framework/resilience/faults.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/comm/world.h"
#include "framework/log/log.h"

namespace tessera::resilience {
namespace {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr std::array<Named<Phase>, 10> phases = {{{"start", Phase::start},
                                                  {"forward", Phase::forward},
                                                  {"reduce", Phase::reduce},
                                                  {"commit", Phase::commit},
                                                  {"update", Phase::update},
                                                  {"report", Phase::report},
                                                  {"gather", Phase::gather},
                                                  {"evaluate", Phase::evaluate},
                                                  {"save", Phase::save},
                                                  {"roll_back", Phase::roll_back}}};
constexpr std::array<Named<FaultMode>, 18> modes = {{{"kill", FaultMode::kill},
                                                     {"term", FaultMode::term},
                                                     {"segv", FaultMode::segv},
                                                     {"bus", FaultMode::bus},
                                                     {"fpe", FaultMode::fpe},
                                                     {"abort", FaultMode::abort},
                                                     {"exit", FaultMode::exit},
                                                     {"quit", FaultMode::quit},
                                                     {"error", FaultMode::error},
                                                     {"hang", FaultMode::hang},
                                                     {"stop", FaultMode::stop},
                                                     {"mpiabort", FaultMode::mpiabort},
                                                     {"slow", FaultMode::slow},
                                                     {"flip", FaultMode::flip},
                                                     {"nan", FaultMode::nan},
                                                     {"inf", FaultMode::inf},
                                                     {"large", FaultMode::large},
                                                     {"spike", FaultMode::spike}}};

template <class Value, std::size_t count>
Value value_of(const std::array<Named<Value>, count>& all, std::string_view name, const char* what,
               std::string_view words) {
  std::string known;
  for (const auto& one : all) {
    if (one.name == name) return one.value;
    known += text(known.empty() ? "" : ", ", one.name);
  }
  throw ConfigError(text("'", words, "': '", name, "' is not a ", what, "; known: ", known));
}

template <class Value, std::size_t count>
std::string_view name_of(const std::array<Named<Value>, count>& all, Value value) {
  return std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.value == value; })->name;
}

std::int64_t number(std::string_view digits, const char* what, std::string_view words) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    throw ConfigError(text("'", words, "': '", digits, "' is not a ", what, "; expected a number from 0"));
  return value;
}

/// Raises the signal with its default effect, whatever handlers there are.
void raise_default(int which) {
  signal(which, SIG_DFL);
  raise(which);
}

void cause(FaultMode mode) {
  switch (mode) {
    case FaultMode::kill:
      raise(SIGKILL);
      break;
    case FaultMode::term:
      raise_default(SIGTERM);
      break;
    case FaultMode::segv:
      raise_default(SIGSEGV);
      break;
    case FaultMode::bus:
      raise_default(SIGBUS);
      break;
    case FaultMode::fpe:
      raise_default(SIGFPE);
      break;
    case FaultMode::abort:
      raise_default(SIGABRT);
      break;
    // Not exit(): its handlers would finalize MPI in order, which a process that fails does not.
    case FaultMode::exit:
      _exit(1);
    case FaultMode::quit:
      _exit(0);
    case FaultMode::error:
      throw Error("an injected error (resilience_config.inject_fault)");
    case FaultMode::hang:
      for (;;) pause();
    case FaultMode::stop:
      raise(SIGSTOP);
      break;
    case FaultMode::mpiabort:
      comm::abort_all_ranks(1);
    // These change the time, memory or numbers (reach, change); the process continues.
    case FaultMode::slow:
    case FaultMode::flip:
    case FaultMode::nan:
    case FaultMode::inf:
    case FaultMode::large:
    case FaultMode::spike:
      break;
  }
}

void tell(const Fault& fault, const std::string& more = {}) {
  log::Logger("resilience")
      .warning(text("injected fault: rank ", fault.rank, ", step ", fault.step, ", ", name_of(phases, fault.phase),
                    ", ", name_of(modes, fault.mode), more));
}

void change_numbers(FaultMode mode, const NumbersOfRank& numbers) {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  if (numbers.loss != nullptr) {
    if (mode == FaultMode::nan) *numbers.loss = static_cast<double>(nan);
    if (mode == FaultMode::spike) *numbers.loss *= 50;
  }
  if (numbers.gradient == nullptr || mode == FaultMode::spike) return;
  *numbers.gradient = mode == FaultMode::nan ? nan : mode == FaultMode::inf ? infinity : 1e6F;
}

}  // namespace

Fault read_fault(std::string_view words) {
  std::vector<std::string_view> parts;
  for (auto rest = words;;) {
    const auto colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (parts.size() != 4 && parts.size() != 5)
    throw ConfigError(
        text("'", words, "': ", parts.size(),
             " parts; expected RANK:STEP:PHASE:MODE or RANK:STEP:PHASE:MODE:START, as in 1:30:update:kill"));
  Fault fault;
  fault.rank = number(parts[0], "rank", words);
  fault.step = number(parts[1], "step", words);
  fault.phase = value_of(phases, parts[2], "phase", words);
  fault.repeats = parts[3].ends_with('!');
  if (fault.repeats) parts[3].remove_suffix(1);
  fault.mode = value_of(modes, parts[3], "mode", words);
  if (fault.repeats && !fault.of_numbers())
    throw ConfigError(text("'", words, "': '", parts[3], "' ends the process and cannot repeat; leave out the '!'"));
  if (fault.of_numbers() && fault.phase != Phase::reduce)
    throw ConfigError(text("'", words, "': '", parts[3], "' changes numbers in phase reduce, not in ", parts[2]));
  if (fault.mode == FaultMode::slow && fault.phase != Phase::reduce)
    throw ConfigError(text("'", words, "': 'slow' waits in phase reduce, not in ", parts[2]));
  if (parts.size() == 5) fault.start = parts[4] == "*" ? -1 : number(parts[4], "start", words);
  return fault;
}

std::int64_t DrawnFaults::rank_of(std::int64_t step) const {
  if (rate <= 0) return -1;
  const auto words =
      RandomKey(seed, Purpose::sampling, name_id("injected faults")).words(static_cast<std::uint64_t>(step), 0);
  const auto drawn = std::uint64_t{words[0]} << 32 | words[1];
  return drawn % static_cast<std::uint64_t>(rate) == 0 ? static_cast<std::int64_t>(words[2]) % ranks : -1;
}

Faults::Faults(const std::vector<std::string>& all, std::int64_t rank, std::int64_t ranks, std::int64_t start)
    : rank_(rank) {
  for (const auto& words : all) {
    const auto fault = read_fault(words);
    if (fault.rank >= ranks)
      throw ConfigError(text("resilience_config.inject_fault: '", words, "': there is no rank ", fault.rank,
                             "; the run has ", ranks, ", from 0; give another rank or start more"));
    if (fault.rank == rank && (fault.start == start || fault.start < 0)) own_.push_back(fault);
  }
}

bool Faults::expects(std::int64_t step, Phase phase) const {
  return std::any_of(own_.begin(), own_.end(),
                     [&](const Fault& fault) { return fault.step == step && fault.phase == phase; });
}

void Faults::reach(std::int64_t step, Phase phase) {
  if (phase == Phase::forward) passes_.lap();
  for (auto& fault : own_) {
    if (fault.phase != phase) continue;
    if (fault.mode == FaultMode::slow && step >= fault.step) {
      if (!std::exchange(fault.done, true)) tell(fault);
      std::this_thread::sleep_for(std::chrono::duration<double>(3 * passes_.seconds()));
    }
    if (fault.step != step || fault.of_numbers() || fault.done) continue;
    fault.done = fault.mode == FaultMode::flip;
    tell(fault, fault.done && flip_ ? ": " + flip_() : "");
    cause(fault.mode);
  }
}

void Faults::change(std::int64_t step, const NumbersOfRank& numbers) {
  for (auto& fault : own_) {
    if (fault.step != step || !fault.of_numbers() || fault.done) continue;
    tell(fault);
    change_numbers(fault.mode, numbers);
    fault.done = !fault.repeats;
  }
  if (drawn_.rank_of(step) != rank_ || (step == last_drawn_ && !drawn_.repeats)) return;
  last_drawn_ = step;
  const Fault fault{.rank = rank_, .step = step, .phase = Phase::reduce, .mode = FaultMode::nan};
  tell(fault);
  change_numbers(fault.mode, numbers);
}

}  // namespace tessera::resilience
