#include "framework/parallel/buckets.h"

#include <algorithm>

namespace tessera::parallel {

namespace {

/// The gradient of a tied embedding is also summed over the first and the last stage. Both must divide it alike, so it
/// has a bucket of its own.
bool stands_alone(const nn::Parameter& parameter) {
  return std::any_of(parameter.shared.begin(), parameter.shared.end(),
                     [](const auto& shared) { return shared.with == nn::GradientSharers::ends; });
}

}  // namespace

std::vector<Bucket> make_buckets(const nn::FlatParameters& layout, std::int64_t elements) {
  std::vector<Bucket> buckets;
  const auto& ranges = layout.ranges();
  bool closed = true;
  // From the last parameter to the first: the order in which the backward pass completes gradients, so that the first
  // bucket can be reduced early.
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const auto& range = ranges[i];
    const bool alone = stands_alone(*range.parameter);
    const bool fits = !closed && !alone && buckets.back().type == range.parameter->type &&
                      (elements == 0 || buckets.back().elements.count < elements);
    closed = alone;
    if (!fits) {
      buckets.push_back({{range.first, range.padded()}, range.parameter->type, i, 1});
      continue;
    }
    auto& bucket = buckets.back();
    bucket.elements = {range.first, bucket.elements.count + range.padded()};
    bucket.first_parameter = i;
    ++bucket.parameters;
  }
  return buckets;
}

std::vector<nn::ElementRange> shards_of(std::span<const Bucket> buckets, int rank, int ranks) {
  std::vector<nn::ElementRange> shards;
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(float));
  for (const auto& bucket : buckets) {
    // The same division as GroupBuffer's, which reduces the gradients: shards must agree to the element.
    const comm::ByteRange all{static_cast<std::size_t>(bucket.elements.first * bytes),
                              static_cast<std::size_t>(bucket.elements.count * bytes)};
    const auto own = comm::GroupBuffer::share(all, rank, ranks);
    if (own.count > 0)
      shards.push_back({static_cast<std::int64_t>(own.first) / bytes, static_cast<std::int64_t>(own.count) / bytes});
  }
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return shards;
}

}  // namespace tessera::parallel
