#pragma once

#include "framework/training/state/state_memory.h"

namespace tessera::training {

/// Sums gradient buckets over the data-parallel ranks while the caller continues with other work.
class BucketReducer {
 public:
  virtual ~BucketReducer() = default;
  /// Declares that this rank's gradients of a bucket are complete. All ranks begin the same buckets in the same order.
  /// The bucket must not change until finish(). Does not block.
  virtual void begin(std::size_t bucket) = 0;
  /// Does what can be done without blocking. Call it regularly, because messages make no progress otherwise.
  virtual void progress() = 0;
  /// Blocks until all buckets that were begun are summed. Throws CommError as Communicator does.
  virtual void finish() = 0;
};

/// Reduces the buckets of a state in its gradient buffer. Afterwards this rank's shards (reduce-scatter, with a
/// distributed optimizer) or all elements (all-reduce) hold the sums.
class GradientReducer final : public BucketReducer {
 public:
  /// Both arguments must outlive this object. Does nothing if the gradients are not exchanged.
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
  /// Both arguments must outlive this object. Does nothing if the weights are not exchanged.
  WeightGather(const StateLayout& layout, StateMemory& memory) : layout_(layout), memory_(memory) {}
  /// Declares that this rank's shards of the weights that the model reads are complete. Does not block. Collective.
  void begin();
  /// Blocks until the shards of all ranks have arrived. Throws CommError as Communicator does.
  void finish();

 private:
  const StateLayout& layout_;
  StateMemory& memory_;
};

}  // namespace tessera::training
