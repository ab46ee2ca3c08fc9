#pragma once

#include <deque>

#include "framework/parallel/process_groups.h"
#include "framework/training/state/model_state.h"
#include "framework/training/step/backward_listener.h"

namespace tessera::training {

/// What a GradientSync works on. All referenced objects must outlive it.
struct SharedGradients {
  const parallel::ProcessGroups& groups;
  const nn::FlatParameters& parameters;
  std::span<const parallel::Bucket> buckets;
  std::span<float> gradients;  ///< main gradients of all parameters
  BucketReducer* reducer;      ///< null: there is only one data-parallel rank
};

/// Reduces the gradients of a step over the ranks: first over data-parallel ranks, bucket by bucket, then those of
/// parameters for which several ranks of one replica each have a summand. Source: Megatron-LM core,
/// DistributedDataParallel and finalize_model_grads.
class GradientSync final : public BackwardListener {
 public:
  struct Options {
    bool overlapped = false;      ///< start a bucket as soon as its gradients are complete; else when all are
    DType type = DType::float32;  ///< gradients are rounded to it after each micro-batch and after the reduction
  };
  /// Throws BugError unless the buckets cover all parameters, from the last to the first, each exactly once.
  GradientSync(const SharedGradients& shared, kernels::Threads& threads, const Options& options);
  /// For all gradients of `state`, which must outlive this object.
  GradientSync(const parallel::ProcessGroups& groups, SharedState& state, kernels::Threads& threads,
               const Options& options);

  void begin_step() override;
  void begin_pass(bool last) override;
  /// Throws BugError if the reduction of the parameter's bucket has already started, because it would miss this
  /// gradient. Ignores leaves that are not among its parameters.
  void gradient_complete(const autograd::Leaf& leaf) override;
  void end_pass() override;
  /// Starts the remaining buckets and waits for all sums; afterwards no gradient is stale. Throws CommError as
  /// Communicator does.
  void finish();

 private:
  /// Fills gradients of parameters [first, first + count) that no pass has written with zeros, for example of experts
  /// without tokens.
  void settle(std::size_t first, std::size_t count);
  void begin(std::size_t bucket);
  std::vector<std::span<float>> ranges_shared_with(nn::GradientSharers who) const;
  void sum_shared(std::span<const std::span<float>> ranges, const comm::Communicator& group, const char* who);

  SharedGradients shared_;
  kernels::Threads& threads_;
  Options options_;
  bool last_ = false;
  std::size_t first_leaf_ = 0;          ///< number of the first parameter's leaf (Leaf::number)
  std::vector<std::size_t> bucket_of_;  ///< bucket of each parameter
  std::vector<std::size_t> missing_;    ///< per bucket: number of parameters whose gradients are not complete
  std::size_t begun_ = 0;               ///< number of buckets whose reduction has started, from the first
  std::vector<std::span<float>> tensor_, expert_tensor_, head_copies_, ends_;
  std::vector<float> packed_;
};

/// Reduces the gradients of all parts of a model's state, which are shared by different groups of ranks.
class ModelGradientSync final : public BackwardListener {
 public:
  /// All referenced objects must outlive this one.
  ModelGradientSync(const parallel::ProcessGroups& groups, ModelState& state, kernels::Threads& threads,
                    const GradientSync::Options& options) {
    for (const auto& part : state.parts()) parts_.emplace_back(groups, *part, threads, options);
  }
  void begin_step() override {
    for (auto& part : parts_) part.begin_step();
  }
  void begin_pass(bool last) override {
    for (auto& part : parts_) part.begin_pass(last);
  }
  void gradient_complete(const autograd::Leaf& leaf) override {
    for (auto& part : parts_) part.gradient_complete(leaf);
  }
  void end_pass() override {
    for (auto& part : parts_) part.end_pass();
  }
  void finish() {
    for (auto& part : parts_) part.finish();
  }

 private:
  std::deque<GradientSync> parts_;
};

}  // namespace tessera::training
