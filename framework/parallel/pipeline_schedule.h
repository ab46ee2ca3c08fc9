#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/parallel/parallel_options.h"

namespace tessera {

/// One thing that a stage does: the forward or the backward pass of one micro batch through one of its chunks.
struct PipelineAction {
  enum class Kind { forward, backward };
  Kind kind = Kind::forward;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  bool operator==(const PipelineAction&) const = default;
};

/// How much there is to do.
struct PipelineShape {
  std::int64_t stages = 1, chunks = 1;  ///< chunks: on each stage
  std::int64_t micro_batches = 1;       ///< of a step, on one replica
  std::int64_t group =
      0;  ///< micro batches that pass through a chunk before the next chunk's turn; 0: as many as stages
};

/// What every stage does in one step, in order. A value: nothing runs here.
///
/// - One stage: forward and backward of each micro batch in turn.
/// - One chunk on each stage, 1F1B: stage p begins with min(P - p - 1, M) forwards, goes on in pairs of forward and
///   backward, and ends with the backwards that are left. So it holds at most P - p micro batches.
/// - Several chunks, interleaved: micro batches go in groups of N through chunk 0, then the same through chunk 1, ...
///   Stage p begins with min(M C, 2 (P - p - 1) + (C - 1) N) forwards, then as above; backwards take the chunks from
///   the last to the first.
///
/// A stage's forward of chunk c needs the same of the stage before (the last stage's chunk c - 1 on stage 0), and its
/// backward needs its own forward and the backward of the stage after. Between two stages, outputs (and likewise
/// gradients) are made in the order in which they are needed.
/// Source: Megatron-LM core_v0.12.1, forward_backward_pipelining_with(out)_interleaving.
class PipelineSchedule {
 public:
  /// Of a training step. Throws ConfigError when mistakes_of_schedule has any.
  static PipelineSchedule training(const PipelineShape& shape);
  /// Of evaluation: every stage only goes forward. Any number of micro batches.
  static PipelineSchedule forward_only(const PipelineShape& shape);
  /// Any other: stages[p] is what stage p does.
  PipelineSchedule(PipelineShape shape, std::vector<std::vector<PipelineAction>> stages);

  const PipelineShape& shape() const { return shape_; }
  const std::vector<PipelineAction>& of_stage(std::int64_t stage) const;
  /// The most micro batches times chunks that a stage holds at once: gone forward and not yet backward.
  std::int64_t most_in_flight(std::int64_t stage) const;

  /// What is wrong with it: an action twice or missing, or stages that wait for each other for ever, when each waits
  /// for what it needs and sending never waits. Empty: it works.
  std::string flaw() const;

 private:
  PipelineShape shape_;
  std::vector<std::vector<PipelineAction>> stages_;
};

/// What does not fit: Megatron-LM's rule on micro batches and their groups when there are several chunks. Options are
/// named as in parallel_config.
std::vector<Mistake> mistakes_of_schedule(const PipelineShape& shape);

/// When each action of a schedule runs, if sending takes no time.
struct PipelineTimes {
  struct Span {
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> spans;  ///< [stage][action]
  double end = 0;                        ///< of the last action
  double busy = 0;                       ///< of all stages together

  /// Time that stages wait, as a share of the time that they work.
  double bubble() const;
};

/// `costs` [stage][chunk] is the time of a forward pass, a backward pass takes twice that; empty: 1 everywhere. Throws
/// BugError when the schedule has a flaw.
PipelineTimes simulate(const PipelineSchedule& schedule, const std::vector<std::vector<double>>& costs = {});

/// The bubble of equal stages in theory: (P - 1) / (M C).
double ideal_bubble(const PipelineShape& shape);

/// All stages over time, a line each, a column for each unit of time: "f0" a forward pass of micro batch 0, "B0" its
/// backward pass, "f0b" through the second chunk, "." waiting. Ends with "..." beyond `most_columns` letters.
std::string drawing(const PipelineSchedule& schedule, std::size_t most_columns = 160);

}  // namespace tessera
