#pragma once

#include "framework/nn/context_rank.h"
#include "framework/nn/expert_rank.h"
#include "framework/nn/expert_sharing.h"
#include "framework/parallel/process_groups.h"

namespace tessera::parallel {

/// Mixture of experts on a rank that shares the experts of a layer (expert parallelism) or the tokens of a micro-batch
/// (sequence or context parallelism) with other ranks.
///
/// The router's logits of a micro-batch are gathered, so that every rank routes all of its tokens and keeps the choices
/// of its own tokens. One all-to-all sends the token rows to the ranks that have the chosen experts, with a copy for
/// each rank that has a part of the expert; a second one returns the results, which are summed. Megatron-LM's
/// dispatchers (allgather, alltoall, alltoall_seq, flex) give the same result. Source: Megatron-LM core,
/// MoEAlltoAllTokenDispatcher; Lepikhin et al., arXiv:2006.16668.
class ExpertParallel final : public nn::ExpertSharing {
 public:
  /// `experts`: which experts this rank has. `context` and `tensor`: which tokens of each sample it has.
  ExpertParallel(const nn::ExpertRank& experts, const nn::ContextRank& context, const nn::TensorRank& tensor)
      : experts_(experts), context_(context), tensor_(tensor) {}

  /// Both functions communicate in the groups of the pass, which must be those of this rank (else BugError). They throw
  /// CommError as Communicator does.
  autograd::ExpertChoices route(const autograd::Var& logits, const autograd::RouterTerms& terms,
                                const nn::Pass& pass) const override;
  autograd::Var experts(const autograd::Var& x, const autograd::ExpertChoices& choices,
                        const autograd::ExpertLayers& layers, const autograd::ExpertNetwork& network,
                        const nn::Pass& pass, const autograd::ExpertTap& tap) const override;

 private:
  nn::ExpertRank experts_;
  nn::ContextRank context_;
  nn::TensorRank tensor_;
};

}  // namespace tessera::parallel
