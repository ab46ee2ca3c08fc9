#include "framework/training/guards/step_repeat.h"

#include <set>

#include "framework/base/system_call.h"

namespace tessera::training {
namespace {

constexpr int most_repeats = 3;

std::vector<StepPrint> prints_of_run(TrainingStep& work, const comm::Communicator& world) {
  const auto own = work.print();
  std::vector<StepPrint> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), "the repeat of a step");
  return all;
}

std::string numbers_of(const StepOutcome& outcome) {
  return text("loss ", outcome.loss, ", gradient norm ", outcome.grad_norm);
}

}  // namespace

std::vector<int> suspects_of(std::span<const StepPrint> first, std::span<const StepPrint> second) {
  std::set<int> replicas;
  for (std::size_t r = 0; r < first.size(); ++r)
    if (first[r].loss != second[r].loss) replicas.insert(first[r].replica);
  std::vector<int> out;
  for (std::size_t r = 0; r < first.size(); ++r) {
    const bool wrong =
        replicas.empty() ? first[r].gradients != second[r].gradients : replicas.count(first[r].replica) != 0;
    if (wrong) out.push_back(static_cast<int>(r));
  }
  return out;
}

RepeatedStep repeat_step(TrainingStep& work, const comm::Communicator& world, std::int64_t consumed) {
  const auto first = prints_of_run(work, world);
  RepeatedStep out;
  out.outcome = work.backward(consumed);
  const auto suspects = suspects_of(first, prints_of_run(work, world));
  if (suspects.empty()) return out;
  const auto hosts = world.all_gather(host_name(), "the repeat of a step");
  for (const int rank : suspects)
    out.suspects +=
        text(out.suspects.empty() ? "" : ", ", "rank ", rank, " on ", hosts[static_cast<std::size_t>(rank)]);
  if (suspects.size() > 1) out.suspects = "one of " + out.suspects;
  return out;
}

JudgedStep judge_step(TrainingStep& work, const comm::Communicator& world, const StepOutcome& outcome,
                      const checkpoint::Progress& progress, const NumberChecks& checks, RerunMode mode) {
  JudgedStep out{outcome, judge(outcome, progress.numbers, checks), {}, {}};
  const auto reject = [&](RejectedStatus status) {
    if (out.bad == BadNumbers::none) return;
    out.rejected.push_back(
        {progress.iteration + 1, status, out.outcome.loss, words_of(out.bad, out.outcome, progress.numbers)});
  };
  reject(mode == RerunMode::disabled ? RejectedStatus::rerun_disabled : RejectedStatus::initial_run);
  const auto again = [&](int repeats) {
    if (mode == RerunMode::disabled) return false;
    return out.bad != BadNumbers::none || (mode == RerunMode::report_stats && repeats == 0);
  };
  for (int repeats = 0; again(repeats); ++repeats) {
    const auto repeated = repeat_step(work, world, progress.consumed_samples);
    const auto before = out.outcome;
    out.outcome = repeated.outcome;
    if (repeated.suspects.empty()) {
      reject(RejectedStatus::first_rerun_reproducible);
      break;
    }
    reject(RejectedStatus::first_rerun_not_reproducible);
    out.bad = judge(out.outcome, progress.numbers, checks);
    const auto words = text("iteration ", progress.iteration + 1, ": ", numbers_of(before),
                            "; computed again: ", numbers_of(out.outcome),
                            ". The same computation gave another result: hardware failed, ", repeated.suspects);
    if (out.bad != BadNumbers::none && repeats + 1 == most_repeats)
      throw Error(text("training: ", words, ". It was repeated ", most_repeats,
                       " times and is still wrong. No weight was changed. Take that host out of the job"));
    out.notes.push_back(words + (out.bad == BadNumbers::none ? ". Training continues with the repeated result"
                                                             : ". It is repeated once more"));
  }
  return out;
}

}  // namespace tessera::training
