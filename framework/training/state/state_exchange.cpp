#include "framework/training/state/state_exchange.h"

namespace tessera::training {

void GradientReducer::begin(std::size_t bucket) {
  if (!buffer_) return;
  const auto& elements = layout_.buckets()[bucket].elements;
  buffer_->begin_sum({static_cast<std::size_t>(elements.first) * sizeof(float),
                      static_cast<std::size_t>(elements.count) * sizeof(float)},
                     !layout_.sharing().shards(), "gradients");
}

void GradientReducer::progress() {
  if (buffer_) buffer_->progress();
}

void GradientReducer::finish() {
  if (buffer_) buffer_->finish();
}

void WeightGather::begin() {
  if (!layout_.sharing().shards()) return;
  const auto buckets = layout_.buckets();
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {  // in the order of the forward pass
    const auto [array, first, count] = layout_.gathered(*bucket);
    const auto bytes = size_of(bucket->type);
    memory_.buffer(array)->begin_gather({first * bytes, count * bytes}, bytes, "weights of the other replicas");
  }
}

void WeightGather::finish() {
  for (const auto array : {StateArray::rounded_weights, StateArray::weights})
    if (auto* buffer = memory_.buffer(array)) buffer->finish();
}

}  // namespace tessera::training
