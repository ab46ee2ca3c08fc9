#include "framework/training/step/step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "framework/base/crc32c.h"
#include "framework/base/trace.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"
#include "framework/training/step/not_finite.h"

namespace tessera::training {
namespace {

/// Gradient all-reduce overlaps with the backward pass, except when gradients are rounded after each micro-batch or
/// delay_grad_reduce asks later stages to wait.
bool overlaps(const ModelSetup& model, const parallel::DataParallelOptions& o) {
  return o.overlap_grad_reduce && model.precision.gradients == DType::float32 &&
         !(o.delay_grad_reduce && model.processes.place.pipeline > 0);
}

/// What a step sums over the run. The auxiliary log follows.
enum Sum : std::size_t {
  squares_of_gradients,
  loss_of_tokens,
  tokens_of_loss,
  seconds_of_stages,
  waiting_of_stages,
  damaged_ranks,
  operations,
  bad_samples,
  readers,            ///< ranks that have data
  digest_of_readers,  ///< the lower part of the digest of the samples, of all ranks that have data
  digest_low,         ///< of those that count: one rank of each replica
  digest_high,
  commit_sums
};

/// What divides the tokens of a sample that context-parallel and sequence-parallel ranks share.
std::int64_t length_multiple(const parallel::ProcessGroups& processes) {
  const auto& sizes = processes.mesh.sizes();
  return (sizes.context > 1 ? 2 * sizes.context : 1) * sizes.tensor;
}

std::vector<const model::Model*> chunks_of(const ModelSetup& model) {
  std::vector<const model::Model*> all;
  for (const auto& chunk : model.chunks) all.push_back(chunk.get());
  return all;
}

}  // namespace

TrainingStep::TrainingStep(const ModelSetup& model, const OptimizationSetup& optimization, const RunData& data,
                           ModelState& state, kernels::Threads& threads, std::uint64_t seed)
    : model_(model),
      optimization_(optimization),
      data_(data),
      state_(state),
      threads_(threads),
      sync_(model.processes, state, threads,
            {.overlapped = overlaps(model, optimization.data_parallel), .type = model.precision.gradients}),
      channel_(model.processes.pipeline),
      auxiliary_(model::report_extents(model.first(), *optimization.objective)),
      evaluated_({.metrics = static_cast<std::int64_t>(optimization.objective->metrics().size())}),
      commit_(commit_sums + auxiliary_.values().size()),
      pipeline_({.chunks = chunks_of(model),
                 .plan = model.plan,
                 .stage = model.processes.place.pipeline,
                 .micro_batch_group = model.micro_batch_group,
                 .frozen_chunks = model.frozen_chunks,
                 .channel = channel_,
                 .listener = sync_,
                 .threads = threads,
                 .groups = &model.processes},
                {.seed = seed,
                 .objective = optimization.objective.get(),
                 .replicas = static_cast<double>(model.processes.replicas()),
                 .log = &auxiliary_}),
      loaders_({.samples = data.batch.batch_size,
                .rank = model.processes.place.data,
                .ranks = model.processes.replicas(),
                .length_multiple = length_multiple(model.processes)},
               data.batch.num_workers,
               data.batch.bad_sample_limit > 0 ? data::BatchLoader::OnBadSample::note
                                               : data::BatchLoader::OnBadSample::error),
      scalars_(optimization, state.parameters()) {
  store_reference(nullptr);
}

void TrainingStep::store_reference(std::unique_ptr<ReferenceCache> cache) {
  const auto* scores = optimization_.objective->reference();
  if (!scores || !model_.reference) return;
  cache_ = std::move(cache);
  reference_.emplace(pipeline_, *model_.reference, *scores, processes().world, cache_.get());
}

/// The micro-batches, after the reference model has seen them.
BatchSource& TrainingStep::referred(BatchSource& batches, std::int64_t micro_batches) {
  return reference_ ? reference_->seen(batches, micro_batches) : batches;
}

double TrainingStep::summed(double own) const {
  processes().world.all_reduce(std::span(&own, 1), "a sum over the run");
  return own;
}

StepOutcome TrainingStep::backward(std::int64_t consumed) {
  StepOutcome outcome;
  while (!backward(consumed, outcome)) {
  }
  return outcome;
}

/// Returns false, on all ranks, if some samples could not be used: they will be replaced when it is called again.
bool TrainingStep::backward(std::int64_t consumed, StepOutcome& outcome) {
  const auto micro_batches = data_.batch_plan.at(consumed).micro_batches;
  {
    const TraceSpan span(TraceKind::phase, "clear gradients");
    state_.clear_gradients();
  }
  auxiliary_.clear();
  {
    const TraceSpan span(TraceKind::phase, "gather weights");
    state_.weights_needed();
  }
  auto batches = loaders_.batches(*data_.splits->train, *data_.train_order, consumed);
  auto totals = pipeline_.train(referred(batches, micro_batches), micro_batches,
                                static_cast<double>(optimization_.loss_scaler.scale()));
  outcome.data_wait_seconds = totals.data_wait_seconds;
  const bool overlapped = overlaps(model_, optimization_.data_parallel);
  if (when_computed_ && !overlapped) when_computed_(totals.loss.sum, state_.first_gradient(false));
  {
    const TraceSpan span(TraceKind::phase, "reduce gradients");
    sync_.finish();
  }
  if (when_computed_ && overlapped) when_computed_(totals.loss.sum, state_.first_gradient(true));
  const bool damaged = when_reduced_ && when_reduced_();
  own_loss_ = totals.loss.sum;
  const TraceSpan span(TraceKind::phase, "gradient norm");

  double squares = 0;
  for (const auto& part : state_.owned_gradients()) squares += kernels::sum_of_squares(threads_, part);
  const bool counts = processes().tensor.rank() == 0;  // all of the tensor-parallel group have the same loss
  commit_[squares_of_gradients] = squares;
  commit_[loss_of_tokens] = counts ? totals.loss.sum : 0;
  commit_[tokens_of_loss] = counts ? totals.loss.count : 0;
  commit_[seconds_of_stages] = totals.seconds;
  commit_[waiting_of_stages] = totals.stage_wait_seconds;
  commit_[damaged_ranks] = damaged ? 1 : 0;
  commit_[operations] = counts && processes().context.rank() == 0 ? totals.flops : 0;
  take_samples(batches);
  own_row_length_ = static_cast<double>(batches.row_lengths()) / static_cast<double>(micro_batches);
  const auto reported = auxiliary_.values();
  std::copy(reported.begin(), reported.end(), commit_.begin() + commit_sums);
  processes().world.all_reduce(std::span(commit_), "the commit of a step");

  if (commit_[bad_samples] > 0) {
    when_bad_samples_(batches.data(), batches.bad());
    return false;
  }

  std::copy(commit_.begin() + commit_sums, commit_.end(), reported.begin());
  outcome.samples = samples_of_commit();
  outcome.stage_seconds = commit_[seconds_of_stages];
  outcome.stage_wait_seconds = commit_[waiting_of_stages];
  outcome.damaged = commit_[damaged_ranks] > 0;
  outcome.flops = commit_[operations];
  const auto tokens = commit_[tokens_of_loss];
  outcome.loss = tokens > 0 ? commit_[loss_of_tokens] / tokens : 0;
  outcome.gradient_factor = optimization_.loss_scaler.inverse();
  if (optimization_.objective->sums_over_step() && tokens > 0) outcome.gradient_factor /= tokens;
  outcome.grad_norm = std::sqrt(commit_[squares_of_gradients]) * outcome.gradient_factor;
  return true;
}

/// What this rank read. The sums are exact: each addend is an integer below 2^32.
void TrainingStep::take_samples(const LoadedBatches& batches) {
  const auto& place = processes().place;
  const bool reads = data_.has_tokens;
  const bool counts = place.tensor == 0 && place.context == 0 && place.pipeline == 0;  // which stage always reads
  const auto& digest = batches.digest();
  commit_[bad_samples] = static_cast<double>(batches.bad().size());
  commit_[readers] = reads ? 1 : 0;
  commit_[digest_of_readers] = reads ? digest.low : 0;
  commit_[digest_low] = counts ? digest.low : 0;
  commit_[digest_high] = counts ? digest.high : 0;
}

/// Of all replicas. Throws Error if ranks of one replica read different samples.
data::SampleDigest TrainingStep::samples_of_commit() const {
  const auto part = [&](Sum sum) { return static_cast<std::uint32_t>(static_cast<std::uint64_t>(commit_[sum])); };
  const data::SampleDigest all{part(digest_low), part(digest_high)};
  const auto of_replica =
      static_cast<std::uint32_t>(commit_[readers]) / static_cast<std::uint32_t>(processes().replicas());
  if (part(digest_of_readers) != all.low * of_replica)
    throw Error(
        "training: the ranks of a replica read different samples; are their data files and caches the same on all "
        "hosts?");
  return all;
}

StepPrint TrainingStep::print() {
  StepPrint out;
  out.loss = std::bit_cast<std::uint64_t>(own_loss_);
  for (const auto& part : state_.parts())
    for (const auto& elements : part->shard_gradients()) out.gradients = crc32c(std::as_bytes(elements), out.gradients);
  out.replica = processes().place.data;
  return out;
}

void TrainingStep::share_router_gaps() {
  if (auxiliary_.extents().experts > 0)
    processes().world.all_reduce_max(auxiliary_.negative_gaps(), "the gaps of routers");
}

UpdateRates TrainingStep::rates(std::int64_t number) const {
  const auto& schedule = *optimization_.schedule;
  const auto& own = optimization_.groups;
  UpdateRates all;
  all.number = number;
  all.learning_rate = schedule.learning_rate();
  if (own.decoupled_lr)
    all.decoupled_rate =
        schedule.learning_rate(*own.decoupled_lr, own.decoupled_min_lr.value_or(schedule.rate_shape().lowest));
  all.weight_decay = schedule.weight_decay();
  return all;
}

void TrainingStep::update(const UpdateRates& rates, const StepOutcome& outcome) {
  const TraceSpan span(TraceKind::phase, "optimizer");
  state_.update(threads_, scalars_.at(rates, outcome), scalars_.group_of());
}

void TrainingStep::complete_update(const UpdateRates& rates, const StepOutcome& outcome) {
  state_.complete_update(threads_, scalars_.at(rates, outcome), scalars_.group_of());
}

std::int64_t TrainingStep::zeros_in_gradients() const {
  std::int64_t zeros = -state_.owned_padding();
  for (const auto& part : state_.owned_gradients()) zeros += kernels::count_zeros(threads_, part);
  return static_cast<std::int64_t>(summed(static_cast<double>(zeros)));
}

double TrainingStep::weight_norm() const {
  double squares = 0;
  for (const auto& part : state_.owned_weights()) squares += kernels::sum_of_squares(threads_, part);
  return std::sqrt(summed(squares));
}

double TrainingStep::mean_row_length() const {
  const auto& place = processes().place;
  const bool counts = place.tensor == 0 && place.context == 0 && place.pipeline == 0;
  return summed(counts ? own_row_length_ : 0) / static_cast<double>(processes().replicas());
}

double TrainingStep::evaluate(const data::Dataset& data, const data::Sampler& order, std::int64_t consumed,
                              std::int64_t steps, const std::function<void(std::int64_t)>& progress) {
  state_.weights_needed();
  const auto of_step = data_.batch_plan.full().micro_batches;
  // All at once, but not where the reference model goes first: its micro-batches are kept.
  const auto at_once = reference_ ? 1 : steps;
  for (;;) {
    evaluated_.clear();
    std::array<double, 3> all = {};
    std::vector<data::BadSample> bad;
    const bool counts = processes().tensor.rank() == 0;
    for (std::int64_t step = 0; step < steps; step += at_once) {
      auto batches = loaders_.batches(data, order, consumed + step * data_.batch_plan.full().samples);
      const auto told = [&](std::int64_t micro_batches) {
        if (progress && micro_batches % of_step == 0) progress(step + micro_batches / of_step);
      };
      const auto count = at_once * of_step;
      const auto loss = pipeline_.evaluate(referred(batches, count), count, std::cref(told), &evaluated_).loss;
      if (counts) all[0] += loss.sum, all[1] += loss.count;
      bad.insert(bad.end(), batches.bad().begin(), batches.bad().end());
    }
    all[2] = static_cast<double>(bad.size());
    processes().world.all_reduce(std::span(all), "the loss of an evaluation");
    if (!evaluated_.values().empty()) processes().world.all_reduce(evaluated_.values(), "the metrics of an evaluation");
    if (all[2] == 0) return all[1] > 0 ? all[0] / all[1] : 0;
    when_bad_samples_(data, bad);
  }
}

std::string TrainingStep::first_not_finite(std::int64_t consumed) {
  const auto& world = processes().world;
  for (const auto search :
       {&TrainingStep::weight_not_finite, &TrainingStep::value_not_finite, &TrainingStep::gradient_not_finite})
    if (auto found = earliest(world, (this->*search)(consumed)); !found.empty()) return found;
  return "every value is finite, but the sum of squares of the gradients is not: they are too large";
}

// Frozen weights are checked when they are loaded.
NotFinite TrainingStep::weight_not_finite(std::int64_t) {
  for (const auto& range : state_.trained_ranges()) {
    const auto at = tessera::kernels::first_not_finite(threads_, range.tensor.floats());
    if (at >= 0) return {0, text("weight ", range.name, " ", range.global_shape, " is not finite at element ", at)};
  }
  return {};
}

NotFinite TrainingStep::value_not_finite(std::int64_t consumed) {
  const auto& plan = model_.plan;
  const auto stage = processes().place.pipeline;
  FirstValue first(threads_, plan.stages() * plan.chunks(),
                   [&](std::int64_t chunk) { return chunk * plan.stages() + stage; });
  auto batches = loaders_.batches(*data_.splits->train, *data_.train_order, consumed);
  pipeline_.look(batches, data_.batch_plan.at(consumed).micro_batches, [&](auto... seen) { first.see(seen...); });
  return first.found();
}

NotFinite TrainingStep::gradient_not_finite(std::int64_t) {
  for (const auto* parameter : state_.parameters()) {
    const auto at = tessera::kernels::first_not_finite(threads_, parameter->leaf.grad().floats());
    if (at >= 0)
      return {0,
              text("the gradient of ", parameter->name, " is not finite at element ", at, "; all weights are finite")};
  }
  return {};
}

}  // namespace tessera::training
