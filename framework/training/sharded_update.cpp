#include "framework/training/sharded_update.h"

#include <algorithm>

#include "framework/kernels/type_conversion.h"

namespace tessera::training {
namespace {

constexpr std::size_t piece_elements =
    32768;  // 0.5 MB of weights, gradients and two state tensors: fits the second-level cache

/// An expert that was chosen more often than the mean (a gradient above 0) becomes less attractive by the rate.
void move_bias(const optim::StepScalars& scalars, const optim::Block& block) {
  const auto rate = static_cast<float>(scalars.lr);
  for (std::size_t i = 0; i < block.grad.size(); ++i) {
    if (block.grad[i] > 0) block.master[i] -= rate;
    if (block.grad[i] < 0) block.master[i] += rate;
  }
}

}  // namespace

ShardedUpdate::ShardedUpdate(const StateLayout& layout, const optim::Optimizer& optimizer, StateMemory& memory)
    : layout_(layout), optimizer_(optimizer), memory_(memory) {
  for (std::size_t i = 0; i < layout.shards().size(); ++i) {
    const auto& shard = layout.shards()[i];
    const auto& parameter = *layout.parameters().ranges()[shard.parameter].parameter;
    const auto shape = parameter.shape();
    const auto all = static_cast<std::size_t>(shard.elements.count);
    if (shape.rank() == 2 && optimizer.wants_whole(parameter.role)) {
      if (layout.sharing().shards() || !parameter.cut.strips.empty())
        throw ConfigError(text("optimizer_config.optimizer_type works on whole matrices, but processes share ",
                               parameter.name, "; give tensor_model_parallel_size 1 and no distributed optimizer"));
      matrices_.push_back({i, 0, all});
      continue;
    }
    for (std::size_t first = 0; first < all; first += piece_elements)
      pieces_.push_back({i, first, std::min(piece_elements, all - first)});
  }
}

optim::Block ShardedUpdate::block(const Piece& piece) {
  const auto& shard = layout_.shards()[piece.shard];
  const auto gradient = static_cast<std::size_t>(shard.elements.first);
  optim::Block block;
  block.master = memory_.floats({shard.weights_in, shard.weight + piece.first, piece.count});
  block.grad = memory_.floats({StateArray::gradients, gradient + piece.first, piece.count});
  for (std::size_t k = 0; k < layout_.state_tensors().size(); ++k)
    block.slots[k] = memory_.floats(layout_.state_of(shard, k)).subspan(piece.first, piece.count);
  return block;
}

void ShardedUpdate::step(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                         std::span<const std::size_t> group_of) {
  for (auto& group : groups) group = optimizer_.prepared(group);
  const auto shard_of = [&](const Piece& piece) -> const PlacedShard& { return layout_.shards()[piece.shard]; };
  const auto scalars = [&](const Piece& piece) -> const optim::StepScalars& {
    return groups[group_of.empty() ? 0 : group_of[shard_of(piece).parameter]];
  };
  threads.parallel_for(pieces_.size(), 1, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      if (scalars(pieces_[i]).balances)
        move_bias(scalars(pieces_[i]), block(pieces_[i]));
      else
        optimizer_.update(scalars(pieces_[i]), block(pieces_[i]));
      round_weights(layout_, memory_, shard_of(pieces_[i]), pieces_[i].first, pieces_[i].count);
    }
  });
  for (const auto& piece : matrices_) {
    const auto shape = layout_.parameters().ranges()[shard_of(piece).parameter].parameter->shape();
    optimizer_.update_whole(threads, scalars(piece), {block(piece), shape[0], shape[1]});
    round_weights(layout_, memory_, shard_of(piece), piece.first, piece.count);
  }
}

void round_weights(const StateLayout& layout, StateMemory& memory, const PlacedShard& shard, std::size_t first,
                   std::size_t count) {
  const auto& range = layout.parameters().ranges()[shard.parameter];
  if (range.parameter->type == DType::float32) return;
  const auto all = static_cast<std::size_t>(range.count);
  const auto in_parameter = static_cast<std::size_t>(shard.elements.first - range.first) + first;
  if (in_parameter >= all) return;
  count = std::min(count, all - in_parameter);  // padding is not rounded
  const auto raw =
      memory.bytes(StateArray::rounded_weights).subspan(2 * (static_cast<std::size_t>(range.first) + in_parameter));
  kernels::narrow_range(memory.floats({shard.weights_in, shard.weight + first, count}),
                        Tensor(raw, range.parameter->type, {static_cast<std::int64_t>(count)}));
}

}  // namespace tessera::training
