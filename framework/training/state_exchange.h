#pragma once

#include "framework/training/state_memory.h"

namespace tessera::training {

/// Sums gradient buckets over the data-parallel ranks while the caller continues with other work.
class BucketReducer {
 public:
  virtual ~BucketReducer() = default;
  /// Declares this rank's gradients of a bucket complete. All ranks begin the same buckets in the same order. The
  /// bucket must not change until finish(). Does not block.
  virtual void begin(std::size_t bucket) = 0;
  /// Does what can be done without blocking; nothing else makes messages progress.
  virtual void progress() = 0;
  /// Blocks until all buckets that were begun are summed. Throws CommError as Communicator does.
  virtual void finish() = 0;
};

/// Reduces the buckets of a state in its gradient buffer. With a distributed optimizer only this rank's shards hold the
/// sum afterwards (reduce-scatter), else all elements do (all-reduce).
class GradientReducer final : public BucketReducer {
 public:
  /// None is owned; both outlive this. Does nothing if the gradients are not exchanged.
  GradientReducer(const StateLayout& layout, StateMemory& memory)
      : layout_(layout), buffer_(memory.buffer(StateArray::gradients)) {}
  void begin(std::size_t bucket) override;
  void progress() override;
  void finish() override;

 private:
  const StateLayout& layout_;
  comm::GroupBuffer* buffer_;
};

/// All-gathers the weights that the ranks of a distributed optimizer have updated.
class WeightGather {
 public:
  /// None is owned; both outlive this. Does nothing if the weights are not exchanged.
  WeightGather(const StateLayout& layout, StateMemory& memory) : layout_(layout), memory_(memory) {}
  /// Declares this rank's shards of what the model reads complete. Does not block. All ranks call it.
  void begin();
  /// Blocks until the shards of all ranks are here. Throws CommError as Communicator does.
  void finish();

 private:
  const StateLayout& layout_;
  StateMemory& memory_;
};

}  // namespace tessera::training
