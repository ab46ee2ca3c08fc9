#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "framework/model/model.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/training/step/backward_listener.h"
#include "framework/training/step/batch_source.h"
#include "framework/training/step/stage_channel.h"
#include "framework/training/step/values_message.h"

namespace tessera::training {

/// What a pipeline works with. All referenced objects must outlive it.
struct PipelineInputs {
  std::vector<const model::Model*> chunks;  ///< chunks of this stage, in order
  const parallel::LayerPlan& plan;          ///< plan of the whole model
  std::int64_t stage = 0;                   ///< pipeline stage of this rank
  std::int64_t micro_batch_group = 0;       ///< see PipelineShape::group
  std::int64_t frozen_chunks = 0;           ///< see ModelSetup::frozen_chunks; no gradient is sent to these chunks
  StageChannel& channel;                    ///< to the other stages; not used if there is only one
  BackwardListener& listener;
  kernels::Threads& threads;
  const parallel::ProcessGroups* groups = nullptr;  ///< passed to the forward passes; null: no layer is sharded
};

/// What all steps have in common. `objective` must outlive the pipeline.
struct StepSettings {
  std::uint64_t seed = 0;                                                       ///< seed of dropout
  const model::Objective* objective = &tessera::model::summed_cross_entropy();  ///< whose gradients a step computes
  double replicas = 1;                                                          ///< number of data-parallel ranks
  nn::AuxiliaryLog* log =
      nullptr;  ///< gets the reports of the step (model::report_extents); null: none; must outlive this
  const autograd::AssumedChoices* assumed = nullptr;  ///< with idle threads: which experts the tokens choose
};

/// Is called with the named values of the forward passes of a step. `chunk`: index in this stage.
using StepTap =
    std::function<void(std::int64_t micro_batch, std::int64_t chunk, std::string_view name, const Tensor& value)>;

/// Runs the micro-batches of a step through the chunks of one stage, in the order of the pipeline schedule, and
/// exchanges activations and gradients with the neighbouring stages (with one stage it exchanges nothing). Owns the
/// memory that a step works in; with one stage it allocates nothing from the heap in steady state.
///
/// The shapes of messages follow from the batch (Model::boundary). If micro-batches differ in length, a small message
/// (ValuesHeader) goes before the values of a forward pass, because a stage need not read data; a gradient has the
/// shape of the values.
class Pipeline {
 public:
  /// Results of the forward passes of a step. Losses are those of the last chunk; zero on other stages.
  struct Totals {
    autograd::LossSum loss;
    double data_wait_seconds = 0;   ///< time waiting for micro-batches
    double seconds = 0;             ///< total time
    double stage_wait_seconds = 0;  ///< part of it waiting for other stages
    double flops = 0;               ///< floating-point operations of this stage's chunks in training (Model::flops)
  };

  Pipeline(PipelineInputs inputs, const StepSettings& settings);

  /// Runs the forward and backward passes of `micro_batches` micro-batches. Adds the gradients of the objective times
  /// `scale` to the main gradients: of a sum over the step, or of a mean over micro-batches and replicas.
  Totals train(BatchSource& source, std::int64_t micro_batches, double scale);
  /// Runs forward passes without dropout. `progress` is called with the number of micro-batches that this stage has
  /// completed. `log` gets the values that the objective reports; null: they are dropped.
  Totals evaluate(BatchSource& source, std::int64_t micro_batches,
                  const std::function<void(std::int64_t micro_batches)>& progress = {},
                  nn::AuxiliaryLog* log = nullptr);
  /// Runs forward passes without dropout of other `chunks`, with the same layers as those of the pipeline, and lets
  /// `objective` judge them.
  void observe(BatchSource& source, std::int64_t micro_batches, std::span<const model::Model* const> chunks,
               const model::Objective& objective);

  /// Runs the forward passes of train(), with dropout; nothing is recorded for a backward pass or reported. `tap` gets
  /// all values that nn::Tap gets, and the losses of tokens as "loss".
  void look(BatchSource& source, std::int64_t micro_batches, const StepTap& tap);

  const Arena& arena() const { return arena_; }

 private:
  /// A micro-batch, kept while a chunk needs it.
  struct LoadedBatch {
    Batch batch;
    std::int64_t micro_batch = -1;  ///< -1: the memory is free
    std::int64_t uses = 0;          ///< number of passes that will still use it
  };
  /// The passes of one micro-batch through one chunk: their tape and the values that were received.
  struct ActivePass {
    ActivePass(Arena& arena, kernels::Threads& threads, bool records) : tape(arena, threads, records) {}
    autograd::Tape tape;
    static constexpr std::int64_t free = -1, sending = -2;  ///< sending: complete, but its output is still read
    std::int64_t micro_batch = free, chunk = free;
    ValuesHeader header_sent, header_received;  ///< only if lengths vary
    Memory input_memory, gradient_memory;
    autograd::Var input, output;
    std::unique_ptr<StageMessage> header_message, input_message, gradient_message;
    std::unique_ptr<StageMessage>
        output_message;  ///< only in training, where the output is kept until the backward pass
  };
  /// What a complete pass sends: the gradient of its input, or, in an evaluation, its output.
  struct Departure {
    std::unique_ptr<StageMessage> message;
    autograd::Gradient gradient;
    ActivePass* pass = nullptr;  ///< to be released when the message is done; null: already released
  };
  /// One execution of a schedule.
  struct Execution {
    BatchSource& source;
    std::int64_t micro_batches;
    bool trains;
    double scale;
    Totals& totals;
    const StepTap* tap = nullptr;  ///< if not null: forward passes as in training, without backward passes
    std::span<const model::Model* const> chunks = {};  ///< in place of those of the pipeline; empty: these
    const model::Objective* objective = nullptr;       ///< in place of StepSettings::objective; null: that
    nn::AuxiliaryLog* log = nullptr;                   ///< of an evaluation
  };
  struct CachedSchedule {
    bool trains;
    std::int64_t micro_batches;
    parallel::PipelineSchedule schedule;
  };

  bool is_trained_before(parallel::LayerPlan::ChunkIndex chunk) const;
  void execute(const Execution& run, const std::function<void(std::int64_t)>& progress = {});
  void forward(const Execution& run, const parallel::PipelineAction& action);
  void backward(const Execution& run, const parallel::PipelineAction& action);
  void begin_receive(const Execution& run, const parallel::PipelineAction& action);
  std::optional<model::Model::Boundary> extents_of(const Execution& run, const parallel::PipelineAction& action,
                                                   ActivePass& pass);
  void wait_for_header(const Execution& run, const parallel::PipelineAction& action);
  std::unique_ptr<StageMessage> send_values(const Execution& run, const parallel::PipelineAction& action,
                                            ActivePass& pass, const LoadedBatch& loaded);
  ActivePass& pass_of(const Execution& run, std::int64_t micro_batch, std::int64_t chunk);
  void make_room_to_send(const Execution& run, std::size_t departures);
  std::size_t most_departures(const Execution& run) const;
  static void release(ActivePass& pass);
  LoadedBatch* loaded_batch(std::int64_t micro_batch);
  LoadedBatch& load(const Execution& run, std::int64_t micro_batch, std::int64_t received_length);
  void used(LoadedBatch& loaded);
  int tag(const parallel::PipelineAction& action, parallel::LayerPlan::ChunkIndex receiver) const;
  model::ForwardMode mode(const Execution& run, const TokenBatch& batch) const;
  const model::Model& chunk(const Execution& run, std::int64_t number) const {
    const auto at = static_cast<std::size_t>(number);
    return run.chunks.empty() ? *inputs_.chunks[at] : *run.chunks[at];
  }
  const parallel::PipelineSchedule& schedule(bool trains, std::int64_t micro_batches);

  PipelineInputs inputs_;
  StepSettings settings_;
  Arena arena_;
  std::deque<LoadedBatch> batches_;
  std::deque<ActivePass> training_passes_, evaluation_passes_;
  std::deque<Departure> departures_;  ///< oldest first
  std::vector<CachedSchedule> schedules_;
};

}  // namespace tessera::training
