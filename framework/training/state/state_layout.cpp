#include "framework/training/state/state_layout.h"

#include <algorithm>

#include "framework/base/checked.h"
#include "framework/kernels/linear.h"

namespace tessera::training {
namespace {

std::size_t unsigned_count(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Appends a range; one that continues the last is joined with it.
void join(std::vector<StateRange>& all, const StateRange& next) {
  if (next.count == 0) return;
  if (!all.empty() && all.back().array == next.array && all.back().first + all.back().count == next.first)
    all.back().count += next.count;
  else
    all.push_back(next);
}

}  // namespace

std::vector<nn::ElementRange> elements_between(const std::vector<nn::ElementRange>& ranges, std::int64_t first,
                                               std::int64_t end) {
  std::vector<nn::ElementRange> found;
  std::int64_t before = 0;  // elements of the ranges before
  for (const auto& range : ranges) {
    const auto from = std::max<std::int64_t>(first - before, 0), to = std::min(end - before, range.count);
    if (from < to) found.push_back({range.first + from, to - from});
    before += range.count;
  }
  return found;
}

StateLayout::StateLayout(std::vector<nn::Parameter*> parameters, const optim::Optimizer* optimizer,
                         const StateSharing& sharing)
    : sharing_(sharing), parameters_(std::move(parameters)) {
  for (const auto& range : parameters_.ranges())
    must(range.parameter->trained, "frozen parameters have no gradient and no optimizer state");
  if (optimizer) state_tensors_ = optimizer->slots();
  must(state_tensors_.size() <= optim::most_slots, "an optimizer has no more state tensors than a block can name");
  buckets_ = parallel::make_buckets(parameters_, sharing.bucket_elements);
  place_shards();
  place_rounded(optimizer != nullptr);
  size_arrays(optimizer != nullptr);
  join_owned();
  deal_out();
}

/// The weights of shards that are not in `weights`, and the state of all shards, lie one after the other.
void StateLayout::place_shards() {
  auto updated = std::vector<nn::ElementRange>{{0, parameters_.elements()}};
  if (sharing_.shards()) updated = parallel::shards_of(buckets_, sharing_.rank, sharing_.ranks);
  auto next = updated.begin();
  for (std::size_t i = 0; i < parameters_.ranges().size(); ++i) {
    const auto& range = parameters_.ranges()[i];
    const auto end = range.first + range.padded();
    const bool in_weights = !sharing_.shards() || range.parameter->type == DType::float32;
    weight_of_.push_back(weights_);
    while (next != updated.end() && next->first + next->count <= range.first) ++next;
    for (auto part = next; part != updated.end() && part->first < end; ++part) {
      const auto first = std::max(part->first, range.first), count = std::min(part->first + part->count, end) - first;
      shards_.push_back({i,
                         {first, count},
                         in_weights ? StateArray::weights : StateArray::master_weights,
                         in_weights ? weights_ + unsigned_count(first - range.first) : masters_,
                         updated_});
      if (!in_weights) masters_ += unsigned_count(count);
      updated_ += unsigned_count(count);
    }
    if (in_weights) weights_ += unsigned_count(range.padded());
  }
}

/// Ranks with shards gather the copies, in the flat layout.
void StateLayout::place_rounded(bool trains) {
  for (const auto& range : parameters_.ranges()) {
    const auto& parameter = *range.parameter;
    auto& at = rounded_of_.emplace_back();
    if (parameter.type == DType::float32) continue;
    if (sharing_.shards()) {
      at = unsigned_count(range.first);
      rounded_ = unsigned_count(parameters_.elements());
    } else if (!trains || !nn::may_be_stored(parameter) || parameter.shape()[1] < 2 ||  // see kernels::Weight
               !kernels::multiplies_floats(parameter.type)) {
      at = rounded_;
      rounded_ += unsigned_count(range.padded());
    }
  }
}

std::size_t StateLayout::rounded_of(std::size_t parameter) const {
  must(keeps_rounded(parameter), "a parameter without a rounded copy is read from its fp32 weight");
  return *rounded_of_[parameter];
}

/// Arrays that are not exchanged come first: one rank's own memory may hold these alone.
void StateLayout::size_arrays(bool trains) {
  const auto bytes = [](const char* name, std::size_t elements, std::size_t tensors = 1) {
    return unsigned_count(checked_product({{name, static_cast<std::int64_t>(elements)},
                                           {"state tensors", static_cast<std::int64_t>(tensors)},
                                           {"bytes of each", sizeof(float)}}));
  };
  const auto all = unsigned_count(parameters_.elements());
  auto& arrays = segment_.arrays;
  const auto set = [&](StateArray which, std::size_t count, bool exchanged) {
    arrays[static_cast<std::size_t>(which)] = {0, count, exchanged && count > 0};
  };
  set(StateArray::weights, bytes("weights", weights_), sharing_.shards());
  set(StateArray::gradients, trains ? bytes("gradients", all) : 0, sharing_.ranks > 1);
  set(StateArray::rounded_weights, bytes("weights", rounded_) / 2, sharing_.shards());
  set(StateArray::master_weights, bytes("weights", masters_), false);
  set(StateArray::optimizer_state, bytes("elements of optimizer state", updated_, state_tensors_.size()), false);
  for (const bool exchanged : {false, true}) {
    for (auto& array : arrays) {
      if (array.exchanged != exchanged) continue;
      if (exchanged) segment_.bytes += StateSegment::alignment;
      array.offset = segment_.bytes;
      segment_.bytes += (array.bytes + StateSegment::alignment - 1) / StateSegment::alignment * StateSegment::alignment;
    }
    if (!exchanged) segment_.own_bytes = segment_.bytes;
  }
}

void StateLayout::join_owned() {
  for (const auto& shard : shards_) {
    const auto& range = parameters_.ranges()[shard.parameter];
    if (range.parameter->role == ParameterRole::expert_bias) continue;
    const auto first = shard.elements.first - range.first, end = first + shard.elements.count;  // in the parameter
    for (auto own : elements_of(shard, StateScope::owned)) {
      if (own.first + own.count == range.count) {  // the padding behind it too, so that neighbours join
        owned_padding_ += end - range.count;
        own.count = end - own.first;
      }
      if (segment_.of(StateArray::gradients).bytes > 0)
        join(owned_gradients_,
             {StateArray::gradients, unsigned_count(range.first + own.first), unsigned_count(own.count)});
      join(owned_weights_,
           {shard.weights_in, shard.weight + unsigned_count(own.first - first), unsigned_count(own.count)});
    }
  }
}

/// Ranks without shards hold the same: rank r of n saves the r-th of n equal parts of all owned elements in their
/// order.
void StateLayout::deal_out() {
  owned_before_ = {0};
  for (const auto& range : parameters_.ranges()) {
    auto all = owned_before_.back();
    for (const auto& owned : range.parameter->owned()) all += owned.count;
    owned_before_.push_back(all);
  }
}

std::int64_t StateLayout::saved_bytes() const {
  std::int64_t elements = 0;
  for (const auto& part : parts(StateScope::saved)) elements += part.elements.count;
  return elements * static_cast<std::int64_t>(sizeof(float) * (1 + state_tensors_.size()));
}

StateBytes StateLayout::bytes() const {
  const auto of = [&](StateArray which) { return static_cast<std::int64_t>(segment_.of(which).bytes); };
  return {of(StateArray::weights) + of(StateArray::rounded_weights) + of(StateArray::master_weights),
          of(StateArray::gradients), of(StateArray::optimizer_state)};
}

StateRange StateLayout::state_of(const PlacedShard& shard, std::size_t tensor) const {
  return {StateArray::optimizer_state, tensor * updated_ + shard.state, unsigned_count(shard.elements.count)};
}

StateRange StateLayout::gathered(const parallel::Bucket& bucket) const {
  const auto count = unsigned_count(bucket.elements.count);
  if (bucket.type == DType::float32) return {StateArray::weights, weight_of_[bucket.first_parameter], count};
  return {StateArray::rounded_weights, unsigned_count(bucket.elements.first), count};
}

/// Counted in the parameter, without padding.
std::vector<nn::ElementRange> StateLayout::elements_of(const PlacedShard& shard, StateScope scope) const {
  const auto& range = parameters_.ranges()[shard.parameter];
  const auto first = shard.elements.first - range.first, last = std::min(first + shard.elements.count, range.count);
  if (scope == StateScope::held) return {{first, last - first}};
  if (scope == StateScope::owned && !sharing_.shards() && sharing_.rank > 0) return {};
  auto owned = range.parameter->owned();
  if (scope == StateScope::saved && !sharing_.shards()) {
    const auto before = owned_before_[shard.parameter];
    owned = elements_between(owned, first_dealt(sharing_.rank) - before, first_dealt(sharing_.rank + 1) - before);
  }
  std::vector<nn::ElementRange> ranges;
  for (const auto& part : owned) {
    const auto begin = std::max(first, part.first), end = std::min(last, part.first + part.count);
    if (begin < end) ranges.push_back({begin, end - begin});
  }
  return ranges;
}

std::vector<PlacedShard> StateLayout::parts(StateScope scope) const {
  std::vector<PlacedShard> all;
  for (const auto& shard : shards_) {
    const auto first = parameters_.ranges()[shard.parameter].first;
    for (const auto& elements : elements_of(shard, scope)) {
      if (elements.count <= 0) continue;  // padding alone
      auto& part = all.emplace_back(shard);
      part.elements = {first + elements.first, elements.count};
      const auto before = unsigned_count(part.elements.first - shard.elements.first);
      part.weight += before, part.state += before;
    }
  }
  return all;
}

std::vector<Box> StateLayout::boxes_of(const PlacedShard& part) const {
  const auto& range = parameters_.ranges()[part.parameter];
  return nn::boxes_of(*range.parameter, {part.elements.first - range.first, part.elements.count});
}

}  // namespace tessera::training
