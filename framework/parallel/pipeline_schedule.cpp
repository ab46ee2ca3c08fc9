#include "framework/parallel/pipeline_schedule.h"

#include <algorithm>

#include "framework/base/number_text.h"

namespace tessera::parallel {
namespace {

using Action = PipelineAction;
using Kind = PipelineAction::Kind;

std::int64_t group_size(const PipelineShape& shape) { return shape.group > 0 ? shape.group : shape.stages; }

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// The forward passes of a stage in order. Backward passes follow the same order with the chunks reversed.
std::vector<Action> forwards(const PipelineShape& s) {
  std::vector<Action> all;
  const auto group = s.chunks > 1 ? group_size(s) : 1;
  for (std::int64_t first = 0; first < s.micro_batches; first += group)
    for (std::int64_t chunk = 0; chunk < s.chunks; ++chunk)
      for (auto micro = first; micro < std::min(first + group, s.micro_batches); ++micro)
        all.push_back({Kind::forward, micro, chunk});
  return all;
}

/// Number of forward passes before the first backward pass.
std::int64_t warm_up(const PipelineShape& s, std::int64_t stage) {
  const auto behind = s.stages - stage - 1;
  if (s.chunks == 1) return std::min(behind, s.micro_batches);
  return std::min(behind * 2 + (s.chunks - 1) * group_size(s), s.micro_batches * s.chunks);
}

/// 1F1B: the k-th backward pass of a stage belongs to the same position of the order as its k-th forward pass, with the
/// chunks reversed.
std::vector<Action> training_actions(const PipelineShape& s, std::int64_t stage) {
  const auto order = forwards(s);
  const auto early = at(warm_up(s, stage));
  const auto backward = [&](std::size_t k) {
    return Action{Kind::backward, order[k].micro_batch, s.chunks - 1 - order[k].chunk};
  };
  std::vector<Action> all(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(early));
  for (auto k = early; k < order.size(); ++k) {
    all.push_back(order[k]);
    all.push_back(backward(k - early));
  }
  for (auto k = order.size() - early; k < order.size(); ++k) all.push_back(backward(k));
  return all;
}

template <class OfStage>
std::vector<std::vector<Action>> all_stages(const PipelineShape& shape, const OfStage& of_stage) {
  std::vector<std::vector<Action>> all;
  for (std::int64_t p = 0; p < shape.stages; ++p) all.push_back(of_stage(p));
  return all;
}

std::string named(const Action& a) {
  return text(a.kind == Kind::forward ? "forward" : "backward", " of micro batch ", a.micro_batch, " in chunk ",
              a.chunk);
}

/// Executes a schedule symbolically: each stage proceeds in its list as long as the inputs of the next action exist.
class ScheduleSimulation {
 public:
  ScheduleSimulation(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& costs)
      : schedule_(schedule),
        shape_(schedule.shape()),
        costs_(costs),
        next_(at(shape_.stages), 0),
        clock_(at(shape_.stages), 0),
        ends_(at(2 * shape_.stages * shape_.chunks * shape_.micro_batches), -1.0) {
    times_.spans.resize(at(shape_.stages));
  }

  /// The action at which the schedule deadlocks; empty if it completes.
  std::string go() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::int64_t p = 0; p < shape_.stages; ++p)
        while (next_[at(p)] < schedule_.of_stage(p).size() && step(p)) moved = true;
    }
    for (std::int64_t p = 0; p < shape_.stages; ++p)
      if (next_[at(p)] < schedule_.of_stage(p).size())
        return text("stage ", p, " waits for ever before ", named(schedule_.of_stage(p)[next_[at(p)]]));
    return "";
  }

  PipelineTimes times() && { return std::move(times_); }

 private:
  double& end_of(Kind kind, std::int64_t p, std::int64_t c, std::int64_t m) {
    return ends_[at(((kind == Kind::forward ? 0 : shape_.stages) + p) * shape_.chunks * shape_.micro_batches +
                    c * shape_.micro_batches + m)];
  }

  /// The time at which the inputs of `a` exist; below 0: not yet.
  double ready(std::int64_t p, const Action& a) {
    const auto last = shape_.stages - 1;
    if (a.kind == Kind::forward) {
      if (p > 0) return end_of(Kind::forward, p - 1, a.chunk, a.micro_batch);
      return a.chunk > 0 ? end_of(Kind::forward, last, a.chunk - 1, a.micro_batch) : 0;
    }
    const auto own = end_of(Kind::forward, p, a.chunk, a.micro_batch);
    double after = 0;
    if (p < last)
      after = end_of(Kind::backward, p + 1, a.chunk, a.micro_batch);
    else if (a.chunk + 1 < shape_.chunks)
      after = end_of(Kind::backward, 0, a.chunk + 1, a.micro_batch);
    return own < 0 || after < 0 ? -1 : std::max(own, after);
  }

  bool step(std::int64_t p) {
    const auto& a = schedule_.of_stage(p)[next_[at(p)]];
    const auto ready_at = ready(p, a);
    if (ready_at < 0) return false;
    const auto cost = (costs_.empty() ? 1 : costs_[at(p)][at(a.chunk)]) * (a.kind == Kind::forward ? 1 : 2);
    const auto begin = std::max(ready_at, clock_[at(p)]);
    clock_[at(p)] = begin + cost;
    end_of(a.kind, p, a.chunk, a.micro_batch) = begin + cost;
    times_.spans[at(p)].push_back({begin, begin + cost});
    times_.end = std::max(times_.end, begin + cost);
    times_.busy += cost;
    ++next_[at(p)];
    return true;
  }

  const PipelineSchedule& schedule_;
  const PipelineShape shape_;
  const std::vector<std::vector<double>>& costs_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_;
  std::vector<double> ends_;  // end time of each action; -1: not done
  PipelineTimes times_;
};

}  // namespace

std::vector<options::Finding> mistakes_of_schedule(const PipelineShape& s) {
  if (s.chunks == 1 || s.stages == 1) return {};
  const std::string option = "parallel_config.microbatch_group_size_per_vp_stage";
  const auto group = group_size(s);
  const auto advice = s.group > 0 ? "change it, or the number of micro batches"
                                  : "change the number of micro batches, or give microbatch_group_size_per_vp_stage";
  if (group < s.stages)
    return {{option, text("microbatch_group_size_per_vp_stage is ", group, ", fewer than the ", s.stages, " stages"),
             "give at least as many as stages", "PAR14"}};
  if (group > s.micro_batches)
    return {{option,
             text("a step has ", s.micro_batches, " micro batches, fewer than the ", group,
                  " that pass through a chunk before the next chunk's turn"),
             advice, "PAR14"}};
  const auto rest = s.micro_batches % group;
  if (rest != 0 && rest < s.stages)
    return {{option,
             text("a step's ", s.micro_batches, " micro batches in groups of ", group, " leave a last group of ", rest,
                  ", fewer than the ", s.stages, " stages"),
             advice, "PAR14"}};
  return {};
}

PipelineSchedule PipelineSchedule::training(const PipelineShape& shape) {
  for (const auto& mistake : mistakes_of_schedule(shape))
    throw ConfigError(text(mistake.option, ": ", options::sentence_of(mistake)));
  return {shape, all_stages(shape, [&](std::int64_t p) { return training_actions(shape, p); })};
}

PipelineSchedule PipelineSchedule::forward_only(const PipelineShape& shape) {
  return {shape, all_stages(shape, [&](std::int64_t) { return forwards(shape); })};
}

PipelineSchedule::PipelineSchedule(PipelineShape shape, std::vector<std::vector<PipelineAction>> stages)
    : shape_(shape), stages_(std::move(stages)) {
  must(static_cast<std::int64_t>(stages_.size()) == shape.stages, "a schedule has a list for each stage");
}

const std::vector<PipelineAction>& PipelineSchedule::of_stage(std::int64_t stage) const {
  must(stage >= 0 && stage < shape_.stages, "a stage that is asked for is in the schedule");
  return stages_[at(stage)];
}

std::int64_t PipelineSchedule::most_in_flight(std::int64_t stage) const {
  std::int64_t now = 0, most = 0;
  for (const auto& action : of_stage(stage)) {
    now += action.kind == Kind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

// First that every stage has each action once, then, by simulation, that no stage waits forever.
std::string PipelineSchedule::flaw() const {
  const auto places = shape_.chunks * shape_.micro_batches;
  const bool trains = std::any_of(stages_[0].begin(), stages_[0].end(),
                                  [](const auto& action) { return action.kind == Kind::backward; });
  for (std::int64_t p = 0; p < shape_.stages; ++p) {
    std::vector<int> done(at(2 * places), 0);
    for (const auto& a : of_stage(p)) {
      if (a.micro_batch < 0 || a.micro_batch >= shape_.micro_batches || a.chunk < 0 || a.chunk >= shape_.chunks)
        return text("stage ", p, " has a ", named(a), ", which there is not");
      auto& count = done[at((a.kind == Kind::forward ? 0 : places) + a.chunk * shape_.micro_batches + a.micro_batch)];
      if (++count > 1) return text("stage ", p, " has the ", named(a), " twice");
    }
    const auto asked = trains ? 2 * places : places;
    if (std::count(done.begin(), done.end(), 1) != asked)
      return text("stage ", p, " has ", of_stage(p).size(), " actions of ", asked);
  }
  const std::vector<std::vector<double>> equal;
  return ScheduleSimulation(*this, equal).go();
}

double PipelineTimes::bubble() const { return end > 0 ? 1 - busy / (end * static_cast<double>(spans.size())) : 0; }

PipelineTimes simulate(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& costs) {
  ScheduleSimulation run(schedule, costs);
  const auto flaw = run.go();
  if (!flaw.empty()) throw BugError("pipeline schedule: " + flaw);
  return std::move(run).times();
}

double ideal_bubble(const PipelineShape& s) {
  const auto waiting = s.stages - 1;
  return static_cast<double>(waiting) / static_cast<double>(s.micro_batches * s.chunks + waiting);
}

const char* ideal_bubble_formula(const PipelineShape& s) { return s.chunks > 1 ? "(p-1)/(v m+p-1)" : "(p-1)/(m+p-1)"; }

std::string bubble_line(double measured, const PipelineShape& shape) {
  return text("pipeline bubble: ", percent_text(measured), " of the stages' time measured; ",
              percent_text(ideal_bubble(shape)), " = ", ideal_bubble_formula(shape),
              " for equal stages that each have a core");
}

std::string drawing(const PipelineSchedule& schedule, std::size_t most_columns) {
  const auto& shape = schedule.shape();
  const auto times = simulate(schedule);
  const auto chunk_letter = [&](std::int64_t chunk) {
    return shape.chunks == 1 ? std::string() : std::string(1, static_cast<char>('a' + chunk % 26));
  };
  const auto width = std::to_string(shape.micro_batches - 1).size() + (shape.chunks > 1 ? 1 : 0) + 2;
  const auto column = [&](double time) { return static_cast<std::size_t>(time) * width; };
  std::string all;
  for (std::int64_t p = 0; p < shape.stages; ++p) {
    std::string line(column(times.end), ' ');
    for (std::size_t unit = 0; unit < line.size(); unit += width) line[unit] = '.';
    const auto& actions = schedule.of_stage(p);
    for (std::size_t k = 0; k < actions.size(); ++k) {
      const auto& span = times.spans[at(p)][k];
      const bool forward = actions[k].kind == Kind::forward;
      auto label = text(forward ? "f" : "B", actions[k].micro_batch, chunk_letter(actions[k].chunk));
      label.resize(column(span.end) - column(span.begin) - 1, forward ? ' ' : '-');
      line.replace(column(span.begin), label.size(), label);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (line.size() > most_columns) line = line.substr(0, most_columns) + "...";
    all += text("stage ", p, " | ", line, "\n");
  }
  return all;
}

}  // namespace tessera::parallel
