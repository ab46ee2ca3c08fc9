#include "framework/training/step/gradient_sync.h"

#include <algorithm>

#include "framework/kernels/type_conversion.h"

namespace tessera::training {
namespace {

/// The bucket of each parameter.
std::vector<std::size_t> buckets_of(const nn::FlatParameters& parameters, std::span<const parallel::Bucket> buckets) {
  const auto& ranges = parameters.ranges();
  std::vector<std::size_t> all(ranges.size());
  auto end = ranges.size();
  auto end_element = parameters.elements();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto& bucket = buckets[b];
    must(bucket.parameters > 0 && bucket.first_parameter + bucket.parameters == end &&
             bucket.elements.first == ranges[bucket.first_parameter].first &&
             bucket.elements.first + bucket.elements.count == end_element,
         "gradient buckets divide the parameters from the last to the first");
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(bucket.first_parameter), bucket.parameters, b);
    end = bucket.first_parameter;
    end_element = bucket.elements.first;
  }
  must(end == 0, "every parameter is in a gradient bucket");
  return all;
}

}  // namespace

GradientSync::GradientSync(const SharedGradients& shared, kernels::Threads& threads, const Options& options)
    : shared_(shared),
      threads_(threads),
      options_(options),
      first_leaf_(shared.parameters.ranges().empty()
                      ? 0
                      : static_cast<std::size_t>(shared.parameters.ranges().front().parameter->leaf.number)),
      bucket_of_(buckets_of(shared.parameters, shared.buckets)),
      tensor_(ranges_shared_with(nn::GradientSharers::tensor)),
      expert_tensor_(ranges_shared_with(nn::GradientSharers::expert_tensor)),
      head_copies_(ranges_shared_with(nn::GradientSharers::head_copies)),
      ends_(ranges_shared_with(nn::GradientSharers::ends)) {}

GradientSync::GradientSync(const parallel::ProcessGroups& groups, SharedState& state, kernels::Threads& threads,
                           const Options& options)
    : GradientSync({.groups = groups,
                    .parameters = state.layout().parameters(),
                    .buckets = state.layout().buckets(),
                    .gradients = state.gradients(),
                    .reducer = state.layout().sharing().ranks > 1 ? &state.reducer() : nullptr},
                   threads, options) {}

std::vector<std::span<float>> GradientSync::ranges_shared_with(nn::GradientSharers who) const {
  std::vector<std::span<float>> ranges;
  for (const auto& range : shared_.parameters.ranges())
    for (const auto& shared : range.parameter->shared)
      if (shared.with == who)
        ranges.push_back(shared_.gradients.subspan(static_cast<std::size_t>(range.first + shared.elements.first),
                                                   static_cast<std::size_t>(shared.elements.count)));
  return ranges;
}

void GradientSync::begin_step() {
  missing_.clear();
  for (const auto& bucket : shared_.buckets) missing_.push_back(bucket.parameters);
  begun_ = 0;
  last_ = false;
}

void GradientSync::begin_pass(bool last) { last_ = last; }

/// Buckets are begun in one order on all members, so a bucket that is complete waits for those before it.
void GradientSync::gradient_complete(const autograd::Leaf& leaf) {
  if (!options_.overlapped || !shared_.reducer) return;
  const auto number = static_cast<std::size_t>(leaf.number) - first_leaf_;
  if (number >= bucket_of_.size()) return;
  const auto bucket = bucket_of_[number];
  must(bucket >= begun_ && missing_[bucket] > 0, "no gradient changes after the reduction of its bucket was begun");
  if (!last_) return;
  --missing_[bucket];
  while (begun_ < missing_.size() && missing_[begun_] == 0) begin(begun_);
  shared_.reducer->progress();
}

void GradientSync::end_pass() { kernels::round_to(threads_, options_.type, shared_.gradients); }

void GradientSync::settle(std::size_t first, std::size_t count) {
  for (const auto& range : std::span(shared_.parameters.ranges()).subspan(first, count))
    if (auto& leaf = range.parameter->leaf; leaf.grad_is_stale()) leaf.grad_to_add_to(threads_);
}

void GradientSync::begin(std::size_t bucket) {
  must(bucket == begun_, "buckets are reduced in order");
  settle(shared_.buckets[bucket].first_parameter, shared_.buckets[bucket].parameters);
  shared_.reducer->begin(bucket);
  ++begun_;
}

void GradientSync::sum_shared(std::span<const std::span<float>> ranges, const comm::Communicator& group,
                              const char* who) {
  if (ranges.empty() || group.size() == 1) return;
  if (ranges.size() == 1) {
    group.all_reduce(ranges[0], who);
    return;
  }
  packed_.clear();
  for (const auto& range : ranges) packed_.insert(packed_.end(), range.begin(), range.end());
  group.all_reduce(std::span(packed_), who);
  std::size_t at = 0;
  for (const auto& range : ranges) {
    std::copy_n(packed_.begin() + static_cast<std::ptrdiff_t>(at), range.size(), range.begin());
    at += range.size();
  }
}

void GradientSync::finish() {
  if (!shared_.reducer) settle(0, shared_.parameters.ranges().size());
  if (shared_.reducer) {
    while (begun_ < shared_.buckets.size()) begin(begun_);
    shared_.reducer->finish();
  }
  sum_shared(tensor_, shared_.groups.tensor, "gradients of what the tensor-parallel group has whole");
  sum_shared(expert_tensor_, shared_.groups.expert_tensor, "gradients of what the ranks of an expert have whole");
  sum_shared(head_copies_, shared_.groups.head_copies, "gradients of copied key and value heads");
  sum_shared(ends_, shared_.groups.ends, "gradient of the tied embedding");
  if (shared_.reducer) kernels::round_to(threads_, options_.type, shared_.gradients);
  for (const auto& range : shared_.parameters.ranges())
    for (const auto& [first, count] : range.parameter->frozen_elements) {
      const auto frozen = nn::FlatParameters::view(range, shared_.gradients).floats();
      std::fill_n(frozen.begin() + static_cast<std::ptrdiff_t>(first), count, 0.0F);
    }
}

}  // namespace tessera::training
