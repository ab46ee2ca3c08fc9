#include "framework/training/step/pipeline.h"

#include <algorithm>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/model/vision_items.h"

namespace tessera::training {
namespace {

constexpr int tags = 32768;  // as many as every MPI has

void wait(StageMessage& message, double& waited) {
  const Stopwatch waiting;
  message.wait();
  waited += waiting.seconds();
}

std::span<const std::int32_t> grids_of(const TokenBatch& batch) {
  if (!batch.has_field(model::grid_field)) return {};
  return batch.field<std::int32_t>(model::grid_field);
}

}  // namespace

Pipeline::Pipeline(PipelineInputs inputs, const StepSettings& settings)
    : inputs_(std::move(inputs)),
      settings_(settings),
      arena_(inputs_.threads.idle() ? Arena::Purpose::addresses : Arena::Purpose::memory) {
  must(static_cast<std::int64_t>(inputs_.chunks.size()) == inputs_.plan.chunks(),
       "a pipeline has all chunks of its stage");
}

const parallel::PipelineSchedule& Pipeline::schedule(bool trains, std::int64_t micro_batches) {
  for (const auto& cached : schedules_)
    if (cached.trains == trains && cached.micro_batches == micro_batches) return cached.schedule;
  const parallel::PipelineShape shape{inputs_.plan.stages(), inputs_.plan.chunks(), micro_batches,
                                      inputs_.micro_batch_group};
  auto made = trains ? parallel::PipelineSchedule::training(shape) : parallel::PipelineSchedule::forward_only(shape);
  schedules_.push_back({trains, micro_batches, std::move(made)});
  return schedules_.back().schedule;
}

Pipeline::Totals Pipeline::train(BatchSource& source, std::int64_t micro_batches, double scale) {
  Totals totals;
  inputs_.listener.begin_step();
  execute({.source = source, .micro_batches = micro_batches, .trains = true, .scale = scale, .totals = totals});
  return totals;
}

Pipeline::Totals Pipeline::evaluate(BatchSource& source, std::int64_t micro_batches,
                                    const std::function<void(std::int64_t)>& progress, nn::AuxiliaryLog* log) {
  Totals totals;
  execute({.source = source, .micro_batches = micro_batches, .trains = false, .scale = 1, .totals = totals, .log = log},
          progress);
  return totals;
}

void Pipeline::observe(BatchSource& source, std::int64_t micro_batches, std::span<const model::Model* const> chunks,
                       const model::Objective& objective) {
  Totals totals;
  execute({.source = source,
           .micro_batches = micro_batches,
           .trains = false,
           .scale = 1,
           .totals = totals,
           .chunks = chunks,
           .objective = &objective});
}

void Pipeline::look(BatchSource& source, std::int64_t micro_batches, const StepTap& tap) {
  Totals totals;
  execute(
      {.source = source, .micro_batches = micro_batches, .trains = false, .scale = 1, .totals = totals, .tap = &tap});
}

void Pipeline::execute(const Execution& run, const std::function<void(std::int64_t)>& progress) {
  const Stopwatch running;
  const auto& actions = schedule(run.trains, run.micro_batches).of_stage(inputs_.stage);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i == 0) begin_receive(run, actions[0]);
    if (i + 1 < actions.size()) begin_receive(run, actions[i + 1]);  // it arrives while this stage computes
    if (actions[i].kind == parallel::PipelineAction::Kind::forward)
      forward(run, actions[i]);
    else
      backward(run, actions[i]);
    trace_counter(TraceKind::counter, "activations", arena_.in_use());
    for (const auto& one : departures_) one.message->done();  // lets it travel on
    if (progress) progress(static_cast<std::int64_t>(i + 1) / inputs_.plan.chunks());
  }
  make_room_to_send(run, 0);
  run.totals.seconds = running.seconds();
}

/// Matches what a chunk receives with what the other one sends.
int Pipeline::tag(const parallel::PipelineAction& action, parallel::LayerPlan::ChunkIndex receiver) const {
  const auto pass = action.micro_batch * inputs_.plan.chunks() + receiver.chunk;
  return static_cast<int>((2 * pass + (action.kind == parallel::PipelineAction::Kind::forward ? 0 : 1)) % tags);
}

/// Whether a chunk before this one, in the order of the forward pass, has trained parameters.
bool Pipeline::is_trained_before(parallel::LayerPlan::ChunkIndex chunk) const {
  std::int64_t position = 0;
  for (auto before = inputs_.plan.before(chunk); before; before = inputs_.plan.before(*before)) ++position;
  return position > inputs_.frozen_chunks;
}

/// The active pass of a micro-batch through a chunk, or a free one for it.
Pipeline::ActivePass& Pipeline::pass_of(const Execution& run, std::int64_t micro_batch, std::int64_t chunk) {
  auto& all = run.trains ? training_passes_ : evaluation_passes_;
  for (auto& one : all)
    if (one.micro_batch == micro_batch && one.chunk == chunk) return one;
  auto free = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.micro_batch == ActivePass::free; });
  if (free == all.end()) {
    auto& made = all.emplace_back(arena_, inputs_.threads, run.trains);
    if (run.trains)
      made.tape.on_grad_ready([this](const autograd::Leaf& leaf) { inputs_.listener.gradient_complete(leaf); });
    free = all.end() - 1;
  }
  free->micro_batch = micro_batch;
  free->chunk = chunk;
  return *free;
}

/// Shape and type of what the action receives, as far as they are known yet. If lengths vary, those of values come in a
/// message before them, and gradients have those of the output.
std::optional<model::Model::Boundary> Pipeline::extents_of(const Execution& run, const parallel::PipelineAction& action,
                                                           ActivePass& pass) {
  if (!run.source.lengths_vary()) {
    const auto both = chunk(run, action.chunk).boundary(run.source.extents());
    return action.kind == parallel::PipelineAction::Kind::forward ? both.input : both.output;
  }
  if (action.kind == parallel::PipelineAction::Kind::backward) {
    if (pass.output.empty()) return {};
    return model::Model::Boundary{pass.output.shape(), pass.output.value().dtype()};
  }
  const parallel::LayerPlan::ChunkIndex here{inputs_.stage, action.chunk};
  if (!pass.header_message)
    pass.header_message =
        inputs_.channel.receive(std::as_writable_bytes(std::span(&pass.header_received, 1)),
                                inputs_.plan.before(here)->stage, tag(action, here), "extents of a micro-batch");
  if (!pass.header_message->done()) return {};
  pass.header_message->wait();
  return model::Model::Boundary{pass.header_received.shape(), pass.header_received.dtype()};
}

/// Begins to receive what the action needs from another stage, so that it arrives as early as it can; does nothing if
/// its extents are not known yet.
void Pipeline::begin_receive(const Execution& run, const parallel::PipelineAction& action) {
  const parallel::LayerPlan::ChunkIndex here{inputs_.stage, action.chunk};
  const bool is_forward = action.kind == parallel::PipelineAction::Kind::forward;
  const auto from = is_forward ? inputs_.plan.before(here) : inputs_.plan.after(here);
  if (!from || (!is_forward && !is_trained_before(*from))) return;
  auto& pass = pass_of(run, action.micro_batch, action.chunk);
  auto& message = is_forward ? pass.input_message : pass.gradient_message;
  if (message) return;  // it was begun
  const auto extents = extents_of(run, action, pass);
  if (!extents) return;
  const auto bytes = static_cast<std::size_t>(extents->shape.elements()) * size_of(extents->type);
  auto& memory = is_forward ? pass.input_memory : pass.gradient_memory;
  memory = arena_.allocate(bytes);
  message = inputs_.channel.receive(memory.bytes().first(bytes), from->stage, tag(action, here),
                                    is_forward ? "values of the stage before" : "gradients of the stage after");
}

/// If lengths vary: waits until the extents of the values are known, and begins to receive them.
void Pipeline::wait_for_header(const Execution& run, const parallel::PipelineAction& action) {
  if (!run.source.lengths_vary()) return;
  begin_receive(run, action);
  auto& pass = pass_of(run, action.micro_batch, action.chunk);
  if (action.kind == parallel::PipelineAction::Kind::backward || pass.input_message) return;
  wait(*pass.header_message, run.totals.stage_wait_seconds);
  begin_receive(run, action);
}

Pipeline::LoadedBatch* Pipeline::loaded_batch(std::int64_t micro_batch) {
  for (auto& one : batches_)
    if (one.micro_batch == micro_batch) return &one;
  return nullptr;
}

/// `received_length`: tokens of a sample, as another stage sent them, for a source that does not know them.
Pipeline::LoadedBatch& Pipeline::load(const Execution& run, std::int64_t micro_batch, std::int64_t received_length) {
  if (auto* loaded = loaded_batch(micro_batch)) return *loaded;
  const auto& source = run.source;
  auto free = std::find_if(batches_.begin(), batches_.end(), [&](const LoadedBatch& one) {
    return one.micro_batch < 0 && one.batch.samples == source.samples() &&
           one.batch.capacity() == source.seq_length() && one.batch.has(source.fields());
  });
  if (free == batches_.end()) {
    batches_.push_back({Batch(source.fields(), source.samples(), source.seq_length())});
    free = batches_.end() - 1;
  }
  if (!source.knows_lengths()) free->batch.resize(received_length);
  {
    const TraceSpan span(TraceKind::data, "wait for a micro-batch", micro_batch);
    run.totals.data_wait_seconds += run.source.read(micro_batch, free->batch);
  }
  free->micro_batch = micro_batch;
  free->uses = inputs_.plan.chunks();
  return *free;
}

/// One pass fewer needs the micro-batch.
void Pipeline::used(LoadedBatch& loaded) {
  if (--loaded.uses == 0) loaded.micro_batch = -1;
}

model::ForwardMode Pipeline::mode(const Execution& run, const TokenBatch& batch) const {
  model::ForwardMode mode;
  mode.groups = inputs_.groups;
  mode.objective = run.objective ? run.objective : settings_.objective;
  mode.log = run.log;
  mode.assumed = settings_.assumed;
  if (!run.trains && !run.tap) return mode;
  mode.seed = settings_.seed;
  mode.training = true;
  if (!run.trains) return mode;
  mode.share = {run.scale, static_cast<double>(run.micro_batches), settings_.replicas};
  // An auxiliary loss is a mean over the tokens of the micro-batch, whether they count or not.
  mode.auxiliary_seed = settings_.objective->sums_over_step() ? run.scale * static_cast<double>(batch.tokens.size())
                                                              : run.scale / mode.share.parts();
  mode.log = settings_.log;
  return mode;
}

void Pipeline::forward(const Execution& run, const parallel::PipelineAction& action) {
  const TraceSpan span(TraceKind::phase, "forward pass", action.micro_batch);
  const parallel::LayerPlan::ChunkIndex here{inputs_.stage, action.chunk};
  auto& pass = pass_of(run, action.micro_batch, action.chunk);
  if (inputs_.plan.before(here)) wait_for_header(run, action);
  auto& loaded = load(run, action.micro_batch, pass.header_received.seq_length);
  const auto batch = loaded.batch.view();
  if (inputs_.plan.before(here)) {
    if (run.source.lengths_vary() && batch.seq_length != pass.header_received.seq_length)
      throw Error(text("training: micro-batch ", action.micro_batch, " has samples of ", batch.seq_length,
                       " tokens on stage ", inputs_.stage, " and of ", pass.header_received.seq_length,
                       " on the stage before; are their data files the same on all hosts?"));
    wait(*pass.input_message, run.totals.stage_wait_seconds);
    const auto boundary = *extents_of(run, action, pass);
    pass.input = pass.tape.input(Tensor(pass.input_memory.bytes(), boundary.type, boundary.shape),
                                 run.trains && is_trained_before(here));
  }
  auto how = mode(run, batch);
  const nn::Tap tap = [&](std::string_view name, const Tensor& value) {
    (*run.tap)(action.micro_batch, action.chunk, name, value);
  };
  if (run.tap) how.tap = &tap;
  const auto& model = chunk(run, action.chunk);
  if (run.trains) run.totals.flops += model.flops(batch.samples, batch.seq_length) + model.image_flops(grids_of(batch));
  auto result = model.forward(pass.tape, pass.input, batch, how);
  const auto next = inputs_.plan.after(here);
  if (next) {
    pass.output = std::move(result.hidden);
    if (!run.trains) make_room_to_send(run, most_departures(run) - 1);
    auto message = send_values(run, action, pass, loaded);
    if (run.trains)
      pass.output_message = std::move(message);
    else
      departures_.push_back({std::move(message), {}, &pass});
  } else {
    if (run.tap) tap("loss", result.loss.token_loss.value());
    run.totals.loss.sum += result.loss.total.sum;
    run.totals.loss.count += result.loss.total.count;
  }
  if (run.trains) return;
  used(loaded);
  result = {};
  if (next)
    pass.micro_batch = ActivePass::sending;
  else
    release(pass);
}

/// Sends the output of a forward pass and, if lengths vary, a header before it.
std::unique_ptr<StageMessage> Pipeline::send_values(const Execution& run, const parallel::PipelineAction& action,
                                                    ActivePass& pass, const LoadedBatch& loaded) {
  const auto next = inputs_.plan.after({inputs_.stage, action.chunk});
  const auto send = [&](std::span<const std::byte> values, std::string_view who) {
    return inputs_.channel.send(values, next->stage, tag(action, *next), who);
  };
  if (!run.source.lengths_vary()) return send(pass.output.value().raw(), "values for the stage after");
  pass.header_sent = ValuesHeader::of(pass.output.value(), loaded.batch.seq_length);
  auto header = send(std::as_bytes(std::span(&pass.header_sent, 1)), "extents of a micro-batch");
  return std::make_unique<ValuesMessage>(std::move(header),
                                         send(pass.output.value().raw(), "values for the stage after"));
}

void Pipeline::backward(const Execution& run, const parallel::PipelineAction& action) {
  const TraceSpan span(TraceKind::phase, "backward pass", action.micro_batch);
  const parallel::LayerPlan::ChunkIndex here{inputs_.stage, action.chunk};
  auto& pass = pass_of(run, action.micro_batch, action.chunk);
  inputs_.listener.begin_pass(action.micro_batch + 1 == run.micro_batches);
  if (const auto after = inputs_.plan.after(here)) {
    const bool arrives = is_trained_before(*after);
    if (arrives) {
      wait_for_header(run, action);
      wait(*pass.gradient_message, run.totals.stage_wait_seconds);
    }
    pass.output_message->wait();  // its memory may be overwritten
    if (arrives) {
      const Tensor gradient(pass.gradient_memory.bytes(), pass.output.value().dtype(), pass.output.shape());
      pass.tape.give_grad(pass.output, {gradient, std::exchange(pass.gradient_memory, {})});
    }
    pass.output = {};
  }
  pass.tape.backward();
  if (const auto before = inputs_.plan.before(here); before && is_trained_before(here)) {
    auto gradient = pass.tape.take_grad(pass.input);
    must(!gradient.empty(), "what came from the stage before has a gradient");
    make_room_to_send(run, most_departures(run) - 1);
    auto message = inputs_.channel.send(gradient.tensor.raw(), before->stage, tag(action, *before),
                                        "gradients for the stage before");
    departures_.push_back({std::move(message), std::move(gradient)});
  }
  inputs_.listener.end_pass();
  auto* loaded = loaded_batch(action.micro_batch);
  must(loaded != nullptr, "a micro-batch stays until its last pass");
  used(*loaded);
  release(pass);
}

/// Waits for messages until there are no more than `departures`. Their memory is released here only, not as soon as
/// they have left, so that the memory of a step does not depend on how fast the other stages are.
void Pipeline::make_room_to_send(const Execution& run, std::size_t departures) {
  for (; departures_.size() > departures; departures_.pop_front()) {
    wait(*departures_.front().message, run.totals.stage_wait_seconds);
    if (auto* pass = departures_.front().pass) release(*pass);
  }
}

/// Number of sent messages that may be incomplete. A neighbour posts the receive of a message one pass before it needs
/// the message. From the last stage to the first that is a whole group of micro-batches later, and a stage must not
/// wait for the messages of that group.
std::size_t Pipeline::most_departures(const Execution& run) const {
  const auto stages = inputs_.plan.stages();
  const bool around = inputs_.stage == (run.trains ? 0 : stages - 1);
  const auto group = inputs_.micro_batch_group > 0 ? inputs_.micro_batch_group : stages;
  return around ? static_cast<std::size_t>(group) + 2 : 2;
}

void Pipeline::release(ActivePass& pass) {
  pass.output_message = {};
  pass.header_message = {};
  pass.input_message = {};
  pass.gradient_message = {};
  pass.input = {};
  pass.output = {};
  pass.tape.clear();
  pass.input_memory = {};
  pass.gradient_memory = {};
  pass.micro_batch = ActivePass::free;
}

}  // namespace tessera::training
