#include "framework/parallel/buckets.h"

#include <algorithm>

namespace tessera {

namespace {

/// The gradient of a tied embedding is also summed over the first and the last stage. Both must divide it alike, so it
/// has a bucket of its own.
bool stands_alone(const Parameter& parameter) {
  return std::any_of(parameter.shared.begin(), parameter.shared.end(),
                     [](const auto& shared) { return shared.with == GradientSharers::ends; });
}

}  // namespace

std::vector<Bucket> make_buckets(const FlatParameters& layout, std::int64_t elements) {
  std::vector<Bucket> buckets;
  const auto& runs = layout.runs();
  bool closed = true;
  // From the last parameter to the first: the order in which the backward pass completes gradients, so that the first
  // bucket can be reduced early.
  for (std::size_t i = runs.size(); i-- > 0;) {
    const auto& run = runs[i];
    const bool alone = stands_alone(*run.parameter);
    const bool fits = !closed && !alone && buckets.back().type == run.parameter->type &&
                      (elements == 0 || buckets.back().elements.count < elements);
    closed = alone;
    if (!fits) {
      buckets.push_back({{run.first, run.padded()}, run.parameter->type, i, 1});
      continue;
    }
    auto& bucket = buckets.back();
    bucket.elements = {run.first, bucket.elements.count + run.padded()};
    bucket.first_run = i;
    ++bucket.runs;
  }
  return buckets;
}

std::vector<Stretch> stretches_of(const FlatParameters& layout, std::span<const Bucket> buckets, int rank, int size) {
  std::vector<Stretch> stretches;
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(float));
  for (const auto& bucket : buckets) {
    // The same division as GroupBuffer's, which reduces the gradients: shards must agree to the element.
    const ByteRange all{static_cast<std::size_t>(bucket.elements.first * bytes),
                        static_cast<std::size_t>(bucket.elements.count * bytes)};
    const auto own = GroupBuffer::share(all, rank, size);
    const auto begin = static_cast<std::int64_t>(own.first) / bytes,
               end = begin + static_cast<std::int64_t>(own.count) / bytes;
    for (auto i = bucket.first_run; i < bucket.first_run + bucket.runs; ++i) {
      const auto& run = layout.runs()[i];
      const auto first = std::max(begin, run.first), last = std::min(end, run.first + run.padded());
      if (first < last) stretches.push_back({i, {first, last - first}});
    }
  }
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.elements.first < b.elements.first; });
  return stretches;
}

std::vector<Stretch> all_stretches(const FlatParameters& layout) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < layout.runs().size(); ++i)
    stretches.push_back({i, {layout.runs()[i].first, layout.runs()[i].padded()}});
  return stretches;
}

}  // namespace tessera
