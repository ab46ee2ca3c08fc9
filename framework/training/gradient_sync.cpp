#include "framework/training/gradient_sync.h"

#include <algorithm>

namespace tessera {

GradientSync::GradientSync(const ProcessGroups& groups, const ModelState& state, bool overlapped)
    : groups_(groups), state_(state), overlapped_(overlapped), replicas_(groups.data.size() > 1) {
  bucket_of_.resize(state.layout().runs().size());
  for (std::size_t b = 0; b < state.buckets().size(); ++b) {
    const auto& bucket = state.buckets()[b];
    for (auto i = bucket.first_run; i < bucket.first_run + bucket.runs; ++i) bucket_of_[i] = b;
  }
  collect(GradientSharers::tensor, tensor_);
  collect(GradientSharers::head_copies, head_copies_);
  collect(GradientSharers::ends, ends_);
}

void GradientSync::collect(GradientSharers with, std::vector<std::span<float>>& ranges) const {
  for (const auto& run : state_.layout().runs())
    for (const auto& shared : run.parameter->shared)
      if (shared.with == with)
        ranges.push_back(state_.gradients().subspan(static_cast<std::size_t>(run.first + shared.elements.first),
                                                    static_cast<std::size_t>(shared.elements.count)));
}

std::function<void(Leaf&)> GradientSync::hook() {
  return [this](Leaf& leaf) { ready(leaf); };
}

void GradientSync::start() {
  missing_.clear();
  for (const auto& bucket : state_.buckets()) missing_.push_back(bucket.runs);
  begun_ = 0;
  last_ = false;
}

/// Buckets are begun in one order on all members, so a bucket that is complete waits for those before it.
void GradientSync::ready(const Leaf& leaf) {
  if (!last_ || !overlapped_ || !replicas_) return;
  --missing_[bucket_of_[static_cast<std::size_t>(leaf.number)]];
  while (begun_ < missing_.size() && missing_[begun_] == 0) begin(begun_);
  state_.progress();
}

void GradientSync::begin(std::size_t bucket) {
  must(bucket == begun_, "buckets are summed in order");
  state_.begin_sum(bucket);
  ++begun_;
}

void GradientSync::sum_shared(std::span<const std::span<float>> ranges, const Communicator& group, const char* who) {
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
  if (replicas_) {
    while (begun_ < state_.buckets().size()) begin(begun_);
    state_.finish_sums();
  }
  sum_shared(tensor_, groups_.tensor, "gradients of what the tensor-parallel group has whole");
  sum_shared(head_copies_, groups_.head_copies, "gradients of copied key and value heads");
  sum_shared(ends_, groups_.ends, "gradient of the tied embedding");
}

}  // namespace tessera
