#include "framework/training/state/sharded_update.h"

#include <algorithm>
#include <atomic>

#include "framework/kernels/type_conversion.h"

namespace tessera::training {
namespace {

constexpr std::size_t piece_elements =
    32768;  // 0.5 MB of weights, gradients and two state tensors: fits the second-level cache

/// An expert that was chosen more often than the mean (a gradient above 0) becomes less attractive by the rate.
class BiasRule final : public optim::Optimizer {
 public:
  std::vector<std::string> slots() const override { return {}; }
  void update(const optim::StepScalars& scalars, optim::Block block) const override {
    if (scalars.skip) return;
    const auto rate = static_cast<float>(scalars.lr);
    for (std::size_t i = 0; i < block.grad.size(); ++i) {
      if (block.grad[i] > 0) block.master[i] -= rate;
      if (block.grad[i] < 0) block.master[i] += rate;
    }
  }
};

const BiasRule bias_rule;

/// Whether the optimizer needs the matrix of this shard as a whole. Throws ConfigError if ranks share it.
bool is_whole(const StateLayout& layout, const optim::Optimizer& optimizer, const PlacedShard& shard) {
  const auto& parameter = *layout.parameters().ranges()[shard.parameter].parameter;
  if (parameter.shape().rank() != 2 || !optimizer.wants_whole(parameter.role)) return false;
  if (layout.sharing().shards() || !parameter.cut.strips.empty())
    throw ConfigError(
        text("optimizer_config.optimizer_type works on whole matrices, but processes share ", parameter.name,
             "; give tensor_model_parallel_size 1, expert_tensor_parallel_size 1 and no distributed optimizer"));
  return true;
}

}  // namespace

resilience::UndoLog::Extents undo_extents(const StateLayout& layout, const optim::Optimizer& optimizer) {
  resilience::UndoLog::Extents extents;
  extents.tensors = layout.state_tensors().size();
  for (const auto& shard : layout.shards()) {
    const auto all = static_cast<std::size_t>(shard.elements.count);
    if (is_whole(layout, optimizer, shard)) {
      extents.largest_whole = std::max(extents.largest_whole, all);
      ++extents.pieces;
    } else {
      extents.pieces += all / piece_elements + (all % piece_elements != 0 ? 1 : 0);
    }
  }
  return extents;
}

UpdatePlan::UpdatePlan(const StateLayout& layout, const optim::Optimizer& optimizer) {
  std::vector<Piece> matrices;
  for (std::size_t i = 0; i < layout.shards().size(); ++i) {
    const auto& shard = layout.shards()[i];
    const auto all = static_cast<std::size_t>(shard.elements.count);
    if (is_whole(layout, optimizer, shard)) {
      matrices.push_back({i, 0, all});
      continue;
    }
    for (std::size_t first = 0; first < all; first += piece_elements)
      pieces_.push_back({i, first, std::min(piece_elements, all - first)});
  }
  parallel_ = pieces_.size();
  pieces_.insert(pieces_.end(), matrices.begin(), matrices.end());
}

/// Of each group of parameters in one step.
struct ShardedUpdate::Scalars {
  std::span<const optim::StepScalars> groups;
  std::span<const std::size_t> group_of;
  const optim::StepScalars& of(const PlacedShard& shard) const {
    return groups[group_of.empty() ? 0 : group_of[shard.parameter]];
  }
};

ShardedUpdate::ShardedUpdate(const StateLayout& layout, const optim::Optimizer& optimizer, StateMemory& memory,
                             resilience::UndoLog* undo, resilience::StateSums* sums)
    : layout_(layout), optimizer_(optimizer), memory_(memory), undo_(undo), sums_(sums), plan_(layout, optimizer) {}

optim::Block ShardedUpdate::block(const Piece& piece) {
  const auto& shard = shard_of(piece);
  const auto gradient = static_cast<std::size_t>(shard.elements.first);
  optim::Block block;
  block.master = memory_.floats({shard.weights_in, shard.weight + piece.first, piece.count});
  block.grad = memory_.floats({StateArray::gradients, gradient + piece.first, piece.count});
  for (std::size_t k = 0; k < layout_.state_tensors().size(); ++k)
    block.slots[k] = memory_.floats(layout_.state_of(shard, k)).subspan(piece.first, piece.count);
  return block;
}

bool ShardedUpdate::model_reads(const Piece& piece) const { return !layout_.keeps_rounded(shard_of(piece).parameter); }

/// The undo log copies the same elements once more, 64 at a time and in the processor's cache, while they are updated:
/// that copy outlives this process, and is of no use when the next block is updated.
void ShardedUpdate::before_change(const optim::Block& block) {
  if (!snapshot_) return;
  snapshot_->before_change(std::as_bytes(block.master));
  for (const auto& tensor : block.slots) snapshot_->before_change(std::as_bytes(tensor));
}

/// What an update found in a piece.
void ShardedUpdate::check(std::size_t index, const resilience::StateSums::Sums& found) {
  sums_->note(sums_->compare(index, found, model_reads(plan_.pieces()[index])));
}

void ShardedUpdate::seal(kernels::Threads& threads) {
  if (sums_ == nullptr) return;
  threads.parallel_for(plan_.pieces().size(), 1, [&](std::size_t i, std::size_t) {
    sums_->keep(i, resilience::StateSums::of(block(plan_.pieces()[i])));
  });
  sums_->clear();
}

resilience::Damage ShardedUpdate::damage(kernels::Threads& threads) {
  std::atomic<resilience::Damage> worst = resilience::Damage::none;
  if (sums_ == nullptr) return worst;
  threads.parallel_for(plan_.pieces().size(), 1, [&](std::size_t i, std::size_t) {
    const auto& piece = plan_.pieces()[i];
    const auto found = sums_->compare(i, resilience::StateSums::of(block(piece)), model_reads(piece));
    for (auto before = worst.load(); before < found && !worst.compare_exchange_weak(before, found);) {
    }
  });
  return worst;
}

/// In the calling thread.
void ShardedUpdate::update(std::size_t index, const Scalars& scalars, int writer) {
  const auto& piece = plan_.pieces()[index];
  const auto& own = scalars.of(shard_of(piece));
  const auto& rule = own.balances ? static_cast<const optim::Optimizer&>(bias_rule) : optimizer_;
  const auto elements = block(piece);
  if (!own.skip) before_change(elements);
  const auto change = [&](const optim::Block& rest, kernels::BlockUndo undo) {
    kernels::UpdateSums sums;
    if (sums_ != nullptr) undo.sums = &sums;
    if (halfway_ && undo_ != nullptr && index == plan_.parallel() / 2) {
      const auto middle = (rest.master.size() / optim::block_elements) / 2;
      optim::update_each(rule, own, rest, undo, [&](std::size_t i) {
        if (i == middle) halfway_();
      });
    } else {
      rule.update_undoable(own, rest, undo);
    }
    if (sums_ == nullptr || own.skip) return;
    // If another process has changed some of the piece, its old sums say nothing.
    const bool whole = rest.master.size() == elements.master.size();
    if (whole) check(index, {sums.weights_before, sums.state_before});
    sums_->keep(index, whole ? resilience::StateSums::Sums{sums.weights_after, sums.state_after}
                             : resilience::StateSums::of(elements));
  };
  if (undo_ != nullptr) {
    undo_->update(index, elements, writer, change);
  } else if (sums_ != nullptr) {
    alignas(64) float copies[(1 + optim::most_slots) * optim::block_elements];  // that nobody reads
    std::atomic<std::uint64_t> copied, done;
    change(elements, {copied, done, copies, 0, nullptr});
  } else {
    rule.update(own, elements);
  }
  round_weights(layout_, memory_, shard_of(piece), piece.first, piece.count);
}

void ShardedUpdate::update_whole(kernels::Threads& threads, std::size_t index, const Scalars& scalars) {
  const auto& piece = plan_.pieces()[index];
  const auto shape = layout_.parameters().ranges()[shard_of(piece).parameter].parameter->shape();
  const auto elements = block(piece);
  before_change(elements);
  const auto change = [&](bool interrupted) {
    if (sums_ != nullptr && !interrupted) check(index, resilience::StateSums::of(elements));
    optimizer_.update_whole(threads, scalars.of(shard_of(piece)), {elements, shape[0], shape[1]});
    if (sums_ != nullptr) sums_->keep(index, resilience::StateSums::of(elements));
  };
  if (undo_ == nullptr)
    change(false);
  else
    undo_->change_whole(index, elements, change);
  round_weights(layout_, memory_, shard_of(piece), piece.first, piece.count);
}

void ShardedUpdate::step(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                         std::span<const std::size_t> group_of) {
  for (auto& group : groups) group = optimizer_.prepared(group);
  const Scalars scalars{groups, group_of};
  // Before others write over the copies of their blocks.
  if (undo_ != nullptr)
    undo_->for_interrupted([&](std::size_t index, int writer) {
      if (index < plan_.parallel()) update(index, scalars, writer);
    });
  const auto writers =
      undo_ == nullptr ? threads.count() : std::min(threads.count(), resilience::UndoLog::most_writers);
  std::atomic<std::size_t> next = 0;
  threads.parallel_for(static_cast<std::size_t>(writers), 1, [&](std::size_t writer, std::size_t) {
    for (auto i = next++; i < plan_.parallel(); i = next++) update(i, scalars, static_cast<int>(writer));
  });
  for (auto i = plan_.parallel(); i < plan_.pieces().size(); ++i) update_whole(threads, i, scalars);
}

void round_weights(const StateLayout& layout, StateMemory& memory, const PlacedShard& shard, std::size_t first,
                   std::size_t count) {
  const auto& range = layout.parameters().ranges()[shard.parameter];
  if (!layout.keeps_rounded(shard.parameter)) return;
  const auto all = static_cast<std::size_t>(range.count);
  const auto in_parameter = static_cast<std::size_t>(shard.elements.first - range.first) + first;
  if (in_parameter >= all) return;
  count = std::min(count, all - in_parameter);  // padding is not rounded
  const auto raw =
      memory.bytes(StateArray::rounded_weights).subspan(2 * (layout.rounded_of(shard.parameter) + in_parameter));
  kernels::narrow_range(memory.floats({shard.weights_in, shard.weight + first, count}),
                        Tensor(raw, range.parameter->type, {static_cast<std::int64_t>(count)}));
}

}  // namespace tessera::training
