#include "framework/parallel/context_parallel.h"

#include "framework/parallel/block_attention.h"
#include "framework/parallel/head_exchange.h"

namespace tessera::parallel {

autograd::Var ContextParallelAttention::attend(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                                               const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                                               std::int64_t layer, const nn::Pass& pass,
                                               const autograd::HeadSinks& sinks) const {
  must(pass.groups != nullptr, "the pass of a model that shares sequences has the groups of this rank");
  const auto& groups = *pass.groups;
  must(groups.context.size() == layout_.rank.ranks && groups.context.rank() == layout_.rank.rank,
       "the rank of a model is that of the pass in its context-parallel group");
  const auto exchange = layout_.of(layer);
  const bool hybrid = exchange == ContextExchange::a2a_p2p;
  const auto by_blocks = exchange == ContextExchange::all_gather ? BlockExchange::gather : BlockExchange::ring;
  if (exchange == ContextExchange::p2p || exchange == ContextExchange::all_gather)
    return block_attention(qkv, e, visible, mask, groups.context, by_blocks, sinks);
  // In a hybrid the neighbours have, taken together, two chunks of the sequence as one rank of a ring has them.
  const auto& neighbours = hybrid ? groups.context_heads : groups.context;
  auto inside = extents_of_heads(e, neighbours.size());
  const auto first_head = neighbours.rank() * inside.H;
  if (!e.alibi.slopes.empty())
    inside.alibi.slopes =
        e.alibi.slopes.subspan(static_cast<std::size_t>(first_head), static_cast<std::size_t>(inside.H));
  const autograd::HeadSinks sinks_inside{sinks.leaf, sinks.first + first_head};
  auto of_heads = mask;
  of_heads.first_element += first_head * pass.mask_tokens() * pass.mask_tokens();
  const auto x = sequence_to_heads(qkv, e, neighbours, layout_.rank.contiguous);
  const auto heads = hybrid
                         ? block_attention(x, inside, visible, of_heads, groups.context_ring, by_blocks, sinks_inside)
                         : autograd::attention(x, inside, visible, of_heads, sinks_inside);
  return heads_to_sequence(heads, e, neighbours, layout_.rank.contiguous);
}

}  // namespace tessera::parallel
