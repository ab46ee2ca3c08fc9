#pragma once

#include <deque>
#include <functional>

#include "framework/data/batch_loader.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/training/gradient_sync.h"
#include "framework/training/parts.h"

namespace tessera {

/// Takes the micro batches of a step through the chunks of this process, as the schedule of its stage says, exchanging
/// values and gradients with the stages before and behind. With one stage and one chunk it exchanges nothing. Owns the
/// memory that a step works in; in steady state of one process it takes nothing from the heap.
class Pipeline {
 public:
  /// What the forward passes of a step gave. Losses are found where the last chunk is.
  struct Totals {
    LossSum loss;
    double data_wait_seconds = 0;                ///< waiting for micro-batches that were not read yet
    double seconds = 0, stage_wait_seconds = 0;  ///< all of it; and of that, waiting for other stages
  };
  /// From where samples come.
  struct Source {
    const Dataset& data;
    const Sampler& order;
    std::int64_t consumed;
  };

  /// None is owned; all outlive this. `seed` is that of dropout.
  Pipeline(const Parts& parts, const ModelState& state, Threads& threads, std::uint64_t seed);

  /// The sums of gradients of `micro_batches` micro batches, each loss times `scale` (and, unless losses count per
  /// token, divided by its tokens, the micro batches and the replicas), added to the main gradients.
  Totals train(const Source& source, std::int64_t micro_batches, double scale, GradientSync& sync);
  /// Forward passes without dropout. `progress` is told how many micro batches this stage is done with.
  Totals evaluate(const Source& source, std::int64_t micro_batches,
                  const std::function<void(std::int64_t micro_batches)>& progress = {});

  const Arena& arena() const { return arena_; }

 private:
  /// A micro batch while some chunk needs it.
  struct Loaded {
    Batch batch;
    std::int64_t micro_batch = -1;  ///< -1: free
    std::int64_t uses = 0;          ///< passes that are still to come
  };
  /// One pass of a micro batch through a chunk: its record, what came in and what goes out.
  struct Flight {
    Flight(Arena& arena, Threads& threads, bool records) : tape(arena, threads, records) {}
    Tape tape;
    static constexpr std::int64_t free = -1, leaving_on = -2;  ///< the latter: waits for what it sends to leave
    std::int64_t micro_batch = free, chunk = free;
    Memory input_memory, gradient_memory;
    Var input, output;
    Transfer arriving, gradient_arriving, leaving;
    Gradient sent_back;
  };
  struct Step;

  void run(const Step& step, const std::function<void(std::int64_t)>& progress = {});
  void forward(const Step& step, const PipelineAction& action, Totals& totals);
  void backward(const Step& step, const PipelineAction& action);
  void expect(const Step& step, const PipelineAction& action);
  Flight& flight(const Step& step, std::int64_t micro_batch, std::int64_t chunk);
  void release(Flight& flight);
  void let_go(Flight& flight, bool wait);
  static void wait(Transfer& transfer, Totals& totals);
  BatchLoader& loader(const Source& source);
  Loaded& load(const Step& step, std::int64_t micro_batch, Totals& totals);
  Loaded& loaded(std::int64_t micro_batch);
  int tag(const PipelineAction& action, LayerPlan::Place receiver) const;
  ForwardMode mode(const Step& step, const TokenBatch& batch) const;
  const PipelineSchedule& schedule(bool trains, std::int64_t micro_batches);

  const Parts& parts_;
  const ModelState& state_;
  Threads& threads_;
  std::uint64_t seed_;
  std::int64_t stage_;
  Arena arena_;
  std::deque<Loaded> batches_;
  std::deque<BatchLoader> loaders_;  ///< one for each source of samples; made at its first use
  std::deque<Flight> recording_, looking_;
  struct Known {
    bool trains;
    std::int64_t micro_batches;
    PipelineSchedule schedule;
  };
  std::vector<Known> schedules_;
};

}  // namespace tessera
