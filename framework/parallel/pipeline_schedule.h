#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/parallel/parallel_options.h"

namespace tessera::parallel {

/// One action of a stage: the forward or the backward pass of one micro-batch through one of its chunks.
struct PipelineAction {
  enum class Kind { forward, backward };
  Kind kind = Kind::forward;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  bool operator==(const PipelineAction&) const = default;
};

/// The size of a schedule.
struct PipelineShape {
  std::int64_t stages = 1, chunks = 1;  ///< chunks: per stage
  std::int64_t micro_batches = 1;       ///< per step and replica
  /// Consecutive micro-batches through one chunk before the next chunk follows (microbatch_group_size_per_vp_stage); 0:
  /// as many as stages.
  std::int64_t group = 0;
};

/// The actions of every stage in one step, in order. A value; it executes nothing. With P stages, C chunks per stage, M
/// micro-batches and groups of N:
///
/// - One stage: forward and backward of each micro-batch in turn.
/// - One chunk per stage, 1F1B: stage p starts with min(P - p - 1, M) forward passes (warm-up), continues with pairs of
///   one forward and one backward pass, and ends with the remaining backward passes. It holds activations of at most
///   P - p micro-batches.
/// - Several chunks, interleaved 1F1B: groups of N micro-batches pass through chunk 0, then through chunk 1, ...
///   Stage p starts with min(M C, 2 (P - p - 1) + (C - 1) N) forward passes, then as above; backward passes take the
///   chunks from the last to the first.
///
/// A forward pass of chunk c needs that of the previous stage (on stage 0: chunk c - 1 of the last stage). A backward
/// pass needs the stage's own forward pass and the backward pass of the next stage. Between two stages, outputs (and
/// likewise gradients) are produced in the order in which they are consumed, so sends and receives match in order.
///
/// Source: Megatron-LM core_v0.12.1, forward_backward_pipelining_with(out)_interleaving.
class PipelineSchedule {
 public:
  /// The schedule of a training step. Throws ConfigError if mistakes_of_schedule finds any.
  static PipelineSchedule training(const PipelineShape& shape);
  /// The schedule of evaluation: forward passes only, any number of micro-batches.
  static PipelineSchedule forward_only(const PipelineShape& shape);
  /// Any other schedule: stages[p] are the actions of stage p. Throws BugError unless there is one list per stage.
  PipelineSchedule(PipelineShape shape, std::vector<std::vector<PipelineAction>> stages);

  const PipelineShape& shape() const { return shape_; }
  /// The actions of a stage. Throws BugError for a stage that does not exist.
  const std::vector<PipelineAction>& of_stage(std::int64_t stage) const;
  /// Maximum of (micro-batch, chunk) pairs whose activations a stage holds at the same time.
  std::int64_t most_in_flight(std::int64_t stage) const;

  /// What is wrong with the schedule: an action missing or twice, or a deadlock (receives block, sends do not). Empty:
  /// it is correct.
  std::string flaw() const;

 private:
  PipelineShape shape_;
  std::vector<std::vector<PipelineAction>> stages_;
};

/// Mistakes of the micro-batch and group sizes for interleaved schedules: Megatron-LM's rules. Options are named as in
/// parallel_config.
std::vector<options::Finding> mistakes_of_schedule(const PipelineShape& shape);

/// The time of each action of a schedule if communication takes no time. In the unit of the costs that are given to
/// simulate().
struct PipelineTimes {
  struct Span {
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> spans;  ///< [stage][action]
  double end = 0;                        ///< of the last action
  double busy = 0;                       ///< sum of the computing time of all stages

  /// The bubble: the fraction of the time that stages wait, 0 to 1.
  double bubble() const;
};

/// Simulates a schedule. `costs` [stage][chunk] is the time of a forward pass; a backward pass takes twice that; empty:
/// all 1. Throws BugError if the schedule has a flaw.
PipelineTimes simulate(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& costs = {});

/// The theoretical bubble of equal stages, as a fraction of the time: (P - 1) / (M C + P - 1).
double ideal_bubble(const PipelineShape& shape);
/// "(p-1)/(m+p-1)", or with virtual stages "(p-1)/(v m+p-1)".
const char* ideal_bubble_formula(const PipelineShape& shape);
/// What a run tells of its bubble: `measured`, the fraction of all stages' time that they waited, beside the ideal.
std::string bubble_line(double measured, const PipelineShape& shape);

/// A text diagram, one line per stage, one column per unit of time: "f0" forward pass of micro-batch 0, "B0" its
/// backward pass, "f0b" through the second chunk, "." idle. Longer lines end with "..." after `most_columns`
/// characters.
std::string drawing(const PipelineSchedule& schedule, std::size_t most_columns = 160);

}  // namespace tessera::parallel
