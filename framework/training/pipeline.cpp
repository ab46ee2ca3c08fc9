#include "framework/training/pipeline.h"

#include <algorithm>

#include "framework/base/clock.h"
#include "framework/kernels/convert.h"

namespace tessera {
namespace {

double tokens_that_count(const TokenBatch& batch) {
  double count = 0;
  for (const auto m : batch.loss_mask) count += m;
  return count;
}

constexpr int tags = 32768;  // as many as every MPI has

}  // namespace

/// What one run through a schedule is about.
struct Pipeline::Step {
  const Source& source;
  std::int64_t micro_batches;
  bool trains;
  double scale;
  GradientSync* sync;
  Totals& totals;
};

Pipeline::Pipeline(const Parts& parts, const ModelState& state, Threads& threads, std::uint64_t seed)
    : parts_(parts), state_(state), threads_(threads), seed_(seed), stage_(parts.processes.place.pipeline) {}

const PipelineSchedule& Pipeline::schedule(bool trains, std::int64_t micro_batches) {
  for (const auto& known : schedules_)
    if (known.trains == trains && known.micro_batches == micro_batches) return known.schedule;
  PipelineShape shape{parts_.plan.stages(), parts_.plan.chunks(), micro_batches, parts_.micro_batch_group};
  auto made = trains ? PipelineSchedule::training(shape) : PipelineSchedule::forward_only(shape);
  schedules_.push_back({trains, micro_batches, std::move(made)});
  return schedules_.back().schedule;
}

Pipeline::Totals Pipeline::train(const Source& source, std::int64_t micro_batches, double scale, GradientSync& sync) {
  Totals totals;
  sync.start();
  run({source, micro_batches, true, scale, &sync, totals});
  return totals;
}

Pipeline::Totals Pipeline::evaluate(const Source& source, std::int64_t micro_batches,
                                    const std::function<void(std::int64_t)>& progress) {
  Totals totals;
  run({source, micro_batches, false, 1, nullptr, totals}, progress);
  return totals;
}

void Pipeline::wait(Transfer& transfer, Totals& totals) {
  const Stopwatch waiting;
  transfer.wait();
  totals.stage_wait_seconds += waiting.seconds();
}

void Pipeline::run(const Step& step, const std::function<void(std::int64_t)>& progress) {
  const Stopwatch running;
  const auto& actions = schedule(step.trains, step.micro_batches).of_stage(stage_);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i == 0) expect(step, actions[0]);
    if (i + 1 < actions.size()) expect(step, actions[i + 1]);  // it arrives while this stage computes
    if (actions[i].kind == PipelineAction::Kind::forward)
      forward(step, actions[i], step.totals);
    else
      backward(step, actions[i]);
    for (auto& flight : step.trains ? recording_ : looking_) let_go(flight, false);
    if (progress) progress(static_cast<std::int64_t>(i + 1) / parts_.plan.chunks());
  }
  for (auto& flight : step.trains ? recording_ : looking_) let_go(flight, true);
  step.totals.seconds = running.seconds();
}

/// Matches what a chunk receives with what the other one sends.
int Pipeline::tag(const PipelineAction& action, LayerPlan::Place receiver) const {
  const auto pass = action.micro_batch * parts_.plan.chunks() + receiver.chunk;
  return static_cast<int>((2 * pass + (action.kind == PipelineAction::Kind::forward ? 0 : 1)) % tags);
}

/// The place of a pass that is under way, or a free one for it.
Pipeline::Flight& Pipeline::flight(const Step& step, std::int64_t micro_batch, std::int64_t chunk) {
  auto& all = step.trains ? recording_ : looking_;
  for (auto& one : all)
    if (one.micro_batch == micro_batch && one.chunk == chunk) return one;
  auto free = std::find_if(all.begin(), all.end(), [](const Flight& one) { return one.micro_batch == Flight::free; });
  if (free == all.end()) {
    auto& made = all.emplace_back(arena_, threads_, step.trains);
    if (step.sync) made.tape.on_grad_ready(step.sync->hook());
    free = all.end() - 1;
  }
  free->micro_batch = micro_batch;
  free->chunk = chunk;
  return *free;
}

/// Make room for what the action needs from another stage, so that it arrives as early as it can.
void Pipeline::expect(const Step& step, const PipelineAction& action) {
  const LayerPlan::Place here{stage_, action.chunk};
  const bool goes_forward = action.kind == PipelineAction::Kind::forward;
  const auto from = goes_forward ? parts_.plan.before(here) : parts_.plan.after(here);
  if (!from) return;
  auto& pass = flight(step, action.micro_batch, action.chunk);
  auto& memory = goes_forward ? pass.input_memory : pass.gradient_memory;
  if (!memory.empty()) return;  // it is on its way
  const TokenBatch extents{.samples = parts_.batch.batch_size, .seq_length = step.source.data.seq_length()};
  const auto boundary = parts_.chunks[static_cast<std::size_t>(action.chunk)]->boundary(extents);
  const auto bytes = static_cast<std::size_t>(boundary.shape.elements()) * size_of(boundary.type);
  memory = arena_.allocate(bytes);
  auto& transfer = goes_forward ? pass.arriving : pass.gradient_arriving;
  transfer =
      parts_.processes.pipeline.receive(memory.bytes().first(bytes), static_cast<int>(from->stage), tag(action, here),
                                        goes_forward ? "values of the stage before" : "gradients of the stage after");
}

Pipeline::Loaded& Pipeline::loaded(std::int64_t micro_batch) {
  const auto found =
      std::find_if(batches_.begin(), batches_.end(), [&](const Loaded& one) { return one.micro_batch == micro_batch; });
  must(found != batches_.end(), "a micro batch stays until its last pass");
  return *found;
}

BatchLoader& Pipeline::loader(const Source& source) {
  for (auto& one : loaders_)
    if (&one.dataset() == &source.data && &one.order() == &source.order) return one;
  const auto& data = parts_.processes.data;
  const BatchShare share{parts_.batch.batch_size, data.rank(), data.size()};
  return loaders_.emplace_back(source.data, source.order, share, parts_.batch.num_workers);
}

Pipeline::Loaded& Pipeline::load(const Step& step, std::int64_t micro_batch, Totals& totals) {
  for (auto& one : batches_)
    if (one.micro_batch == micro_batch) return one;
  auto free = std::find_if(batches_.begin(), batches_.end(), [&](const Loaded& one) {
    return one.micro_batch < 0 && one.batch.seq_length == step.source.data.seq_length();
  });
  if (free == batches_.end()) {
    batches_.push_back({Batch(parts_.batch.batch_size, step.source.data.seq_length())});
    free = batches_.end() - 1;
  }
  const auto per_micro_batch = free->batch.samples * parts_.processes.data.size();
  totals.data_wait_seconds +=
      loader(step.source).read(step.source.consumed + micro_batch * per_micro_batch, free->batch);
  free->micro_batch = micro_batch;
  free->uses = parts_.plan.chunks();
  return *free;
}

ForwardMode Pipeline::mode(const Step& step, const TokenBatch& batch) const {
  ForwardMode mode;
  if (!step.trains) return mode;
  const auto replicas = static_cast<double>(parts_.processes.data.size());
  const auto tokens = parts_.options.calculate_per_token_loss
                          ? 1
                          : tokens_that_count(batch) * static_cast<double>(step.micro_batches) * replicas;
  mode.seed = seed_;
  mode.training = true;
  mode.loss_seed = tokens > 0 ? step.scale / tokens : 0;
  return mode;
}

void Pipeline::forward(const Step& step, const PipelineAction& action, Totals& totals) {
  const LayerPlan::Place here{stage_, action.chunk};
  const auto& model = *parts_.chunks[static_cast<std::size_t>(action.chunk)];
  auto& pass = flight(step, action.micro_batch, action.chunk);
  auto& source = load(step, action.micro_batch, totals);
  const auto batch = source.batch.view();
  if (parts_.plan.before(here)) {
    wait(pass.arriving, totals);
    const auto boundary = model.boundary(batch);
    pass.input = pass.tape.input(Tensor(pass.input_memory.bytes(), boundary.type, boundary.shape), step.trains);
  }
  auto result = model.forward(pass.tape, pass.input, batch, mode(step, batch));
  const auto next = parts_.plan.after(here);
  if (next) {
    pass.output = std::move(result.hidden);
    pass.leaving = parts_.processes.pipeline.send(pass.output.value().raw(), static_cast<int>(next->stage),
                                                  tag(action, *next), "values for the stage after");
  } else {
    totals.loss.sum += result.loss.total.sum;
    totals.loss.count += result.loss.total.count;
  }
  if (step.trains) return;
  if (--source.uses == 0) source.micro_batch = -1;
  result = {};
  release(pass);
}

void Pipeline::backward(const Step& step, const PipelineAction& action) {
  const LayerPlan::Place here{stage_, action.chunk};
  auto& pass = flight(step, action.micro_batch, action.chunk);
  step.sync->last_micro_batch(action.micro_batch + 1 == step.micro_batches);
  if (parts_.plan.after(here)) {
    wait(pass.gradient_arriving, step.totals);
    pass.leaving.wait();  // its memory may be taken over
    const auto& shape = pass.output.shape();
    const Tensor gradient(pass.gradient_memory.bytes(), pass.output.value().dtype(), shape);
    pass.tape.give_grad(pass.output, {gradient, std::exchange(pass.gradient_memory, {})});
    pass.output = {};
  }
  pass.tape.backward();
  if (const auto before = parts_.plan.before(here)) {
    pass.sent_back = pass.tape.take_grad(pass.input);
    must(!pass.sent_back.empty(), "what came from the stage before has a gradient");
    pass.leaving = parts_.processes.pipeline.send(pass.sent_back.tensor.raw(), static_cast<int>(before->stage),
                                                  tag(action, *before), "gradients for the stage before");
  }
  round_to(threads_, parts_.precision.gradients, state_.gradients());
  auto& source = loaded(action.micro_batch);
  if (--source.uses == 0) source.micro_batch = -1;
  release(pass);
}

/// The pass is through; its memory goes when what it sends has left.
void Pipeline::release(Flight& flight) {
  flight.micro_batch = Flight::leaving_on;
  let_go(flight, false);
}

void Pipeline::let_go(Flight& flight, bool wait) {
  if (flight.micro_batch != Flight::leaving_on) return;
  if (wait) flight.leaving.wait();
  if (!flight.leaving.done()) return;
  flight.leaving = {};
  flight.arriving = {};
  flight.gradient_arriving = {};
  flight.sent_back = {};
  flight.input = {};
  flight.output = {};
  flight.tape.clear();
  flight.input_memory = {};
  flight.gradient_memory = {};
  flight.micro_batch = Flight::free;
}

}  // namespace tessera
