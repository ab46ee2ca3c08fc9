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
  /// Number of consecutive micro-batches that pass through one chunk before the next chunk follows
  /// (microbatch_group_size_per_vp_stage); 0: the number of stages.
  std::int64_t group = 0;
};

/// The actions of every stage in one step, in order. A plain value; it does not execute anything. With P stages, C
/// chunks per stage, M micro-batches and groups of N micro-batches:
///
/// - One stage: forward and backward of each micro-batch in turn.
/// - One chunk per stage, 1F1B: stage p starts with min(P - p - 1, M) forward passes (warm-up), continues with pairs of
///   one forward and one backward pass, and ends with the remaining backward passes. It holds activations of at most
///   P - p micro-batches.
/// - Several chunks, interleaved 1F1B: groups of N micro-batches pass through chunk 0, then through chunk 1, ...
///   Stage p starts with min(M C, 2 (P - p - 1) + (C - 1) N) forward passes, then as above; backward passes take the
///   chunks from the last to the first.
///
/// The forward pass of chunk c requires that of the previous stage (on stage 0: chunk c - 1 of the last stage). A
/// backward pass requires the stage's own forward pass and the backward pass of the next stage. Between two stages,
/// outputs (and gradients) are produced in the order in which they are consumed, so sends and receives match in order.
///
/// Source: Megatron-LM core_v0.12.1, forward_backward_pipelining_with(out)_interleaving.
class PipelineSchedule {
 public:
  /// The schedule of a training step. Throws ConfigError for the first mistake of mistakes_of_schedule(), if any.
  static PipelineSchedule training(const PipelineShape& shape);
  /// The schedule of evaluation: only forward passes, any number of micro-batches.
  static PipelineSchedule forward_only(const PipelineShape& shape);
  /// Any other schedule: stages[p] contains the actions of stage p. Throws BugError unless there is one list per stage.
  PipelineSchedule(PipelineShape shape, std::vector<std::vector<PipelineAction>> stages);

  const PipelineShape& shape() const { return shape_; }
  /// The actions of a stage. Throws BugError for a stage that does not exist.
  const std::vector<PipelineAction>& of_stage(std::int64_t stage) const;
  /// Maximum number of (micro-batch, chunk) pairs whose activations a stage holds at the same time.
  std::int64_t most_in_flight(std::int64_t stage) const;

  /// Describes what is wrong with the schedule: a missing or repeated action, or a deadlock (receives block, sends do
  /// not). Empty: the schedule is correct.
  std::string flaw() const;

 private:
  PipelineShape shape_;
  std::vector<std::vector<PipelineAction>> stages_;
};

/// Returns which micro-batch and group sizes violate Megatron-LM's rules for interleaved schedules. Options are named
/// as in parallel_config.
std::vector<options::Finding> mistakes_of_schedule(const PipelineShape& shape);

/// Times of a schedule's actions if communication takes no time, in the unit of the costs given to simulate().
struct PipelineTimes {
  struct Span {
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> spans;  ///< [stage][action]
  double end = 0;                        ///< end of the last action
  double busy = 0;                       ///< sum of the computing times of all stages

  /// The bubble: fraction of the stages' time in which they wait, 0 to 1.
  double bubble() const;
};

/// Simulates a schedule. `costs` [stage][chunk]: time of a forward pass; a backward pass takes twice as long; empty:
/// all 1. Throws BugError if the schedule has a flaw().
PipelineTimes simulate(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& costs = {});

/// Bubble of a schedule with equal stages, as a fraction of the time: (P - 1) / (M C + P - 1).
double ideal_bubble(const PipelineShape& shape);
/// The formula of ideal_bubble(): "(p-1)/(m+p-1)", or with virtual stages "(p-1)/(v m+p-1)".
const char* ideal_bubble_formula(const PipelineShape& shape);
/// Text for the log of a run. `measured`: fraction of all stages' time in which they waited; shown beside the ideal.
std::string bubble_line(double measured, const PipelineShape& shape);

/// A text diagram with one line per stage and one column per unit of time: "f0" forward pass of micro-batch 0, "B0" its
/// backward pass, "f0b" forward pass through the second chunk, "." idle. Lines longer than `most_columns` characters
/// end with "...".
std::string drawing(const PipelineSchedule& schedule, std::size_t most_columns = 160);

}  // namespace tessera::parallel
