#pragma once

#include "framework/nn/attention_layer.h"
#include "framework/parallel/context_layout.h"
#include "framework/parallel/process_groups.h"

namespace tessera::parallel {

/// The attention core on a rank that shares each sequence with other ranks. All exchanges give the same result, except
/// for the order of sums.
class ContextParallelAttention final : public nn::AttentionCore {
 public:
  explicit ContextParallelAttention(ContextLayout layout) : layout_(std::move(layout)) {}

  /// Communicates in the context-parallel groups of the pass. Throws BugError if the pass has no groups or those of
  /// another rank, and ShapeError if the heads cannot be divided among the ranks that exchange them.
  autograd::Var attend(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                       const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask, std::int64_t layer,
                       const nn::Pass& pass, const autograd::HeadSinks& sinks) const override;

 private:
  ContextLayout layout_;
};

}  // namespace tessera::parallel
