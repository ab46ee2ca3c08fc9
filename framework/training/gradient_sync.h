#pragma once

#include <functional>

#include "framework/parallel/process_groups.h"
#include "framework/training/model_state.h"

namespace tessera {

/// Brings the gradients of the processes together: those of replicas, bucket by bucket, and those of parameters that
/// several processes of one replica have a part of. Source: Megatron-LM core, DistributedDataParallel and
/// finalize_model_grads.
class GradientSync {
 public:
  /// None is owned; all outlive this. With `overlapped` a bucket is sent as soon as the last micro batch has completed
  /// its gradients; else when all are there.
  GradientSync(const ProcessGroups& groups, const ModelState& state, bool overlapped);

  /// To be told of each leaf whose gradient of a micro batch is complete, as Tape::on_grad_ready does.
  std::function<void(Leaf&)> hook();
  /// A step begins.
  void start();
  /// The next backward passes complete the gradients of the step: of the chunk that runs, until this is told false.
  void last_micro_batch(bool is_last) { last_ = is_last; }
  /// Wait for all sums.
  void finish();

 private:
  void ready(const Leaf& leaf);
  void begin(std::size_t bucket);
  void collect(GradientSharers with, std::vector<std::span<float>>& ranges) const;
  void sum_shared(std::span<const std::span<float>> ranges, const Communicator& group, const char* who);

  const ProcessGroups& groups_;
  const ModelState& state_;
  bool overlapped_, replicas_;
  bool last_ = false;
  std::vector<std::size_t> bucket_of_;  ///< of each parameter
  std::vector<std::size_t> missing_;    ///< parameters of each bucket whose gradients are not complete
  std::size_t begun_ = 0;               ///< buckets; always the first ones
  std::vector<std::span<float>> tensor_, head_copies_, ends_;
  std::vector<float> packed_;
};

}  // namespace tessera
