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

std::vector<ParameterShard> shards_of(const nn::FlatParameters& layout, std::span<const Bucket> buckets, int rank,
                                      int ranks) {
  std::vector<ParameterShard> shards;
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(float));
  for (const auto& bucket : buckets) {
    // The same division as GroupBuffer's, which reduces the gradients: shards must agree to the element.
    const comm::ByteRange all{static_cast<std::size_t>(bucket.elements.first * bytes),
                              static_cast<std::size_t>(bucket.elements.count * bytes)};
    const auto own = comm::GroupBuffer::share(all, rank, ranks);
    const auto begin = static_cast<std::int64_t>(own.first) / bytes,
               end = begin + static_cast<std::int64_t>(own.count) / bytes;
    for (auto i = bucket.first_parameter; i < bucket.first_parameter + bucket.parameters; ++i) {
      const auto& range = layout.ranges()[i];
      const auto first = std::max(begin, range.first), last = std::min(end, range.first + range.padded());
      if (first < last) shards.push_back({i, {first, last - first}});
    }
  }
  std::sort(shards.begin(), shards.end(),
            [](const auto& a, const auto& b) { return a.elements.first < b.elements.first; });
  return shards;
}

std::vector<ParameterShard> whole_parameters(const nn::FlatParameters& layout) {
  std::vector<ParameterShard> shards;
  for (std::size_t i = 0; i < layout.ranges().size(); ++i)
    shards.push_back({i, {layout.ranges()[i].first, layout.ranges()[i].padded()}});
  return shards;
}

}  // namespace tessera::parallel
