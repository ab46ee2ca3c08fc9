#pragma once

#include <limits>

#include "framework/autograd/tape.h"
#include "framework/kernels/expert_rows.h"
#include "framework/kernels/router.h"

namespace tessera::autograd {

/// Method that balances the load of the experts: an auxiliary loss, or Sinkhorn normalization; kernels/router.h and
/// docs/experts.md have the formulas.
enum class RouterBalance { none, aux_loss, seq_aux_loss, sinkhorn };

/// Assumed choices of experts for a pass that computes nothing and only counts memory (kernels::Threads::Idle).
struct AssumedChoices {
  enum class Spread {
    balanced,  ///< every expert is chosen equally often
    here,      ///< as many choices as possible fall on experts of this rank, equally often; the rest on other ranks
    elsewhere  ///< as many choices as possible fall on experts of other ranks, equally often; the rest on this rank
  };
  Spread spread = Spread::balanced;
  std::int64_t first = 0, count = 0;  ///< experts of this rank: [first, first + count) of the layer

  /// Writes first_row [E + 1], as kernels::sort_choices does, for `tokens` tokens with `topk` choices each. An expert
  /// gets at most `most` rows; further choices of it are dropped.
  void sort(std::int64_t tokens, std::int64_t topk, std::int64_t most, std::span<std::int64_t> first_row) const;
};

/// Settings of a router. Owns nothing.
struct RouterTerms {
  kernels::RouterRule rule;
  RouterBalance balance = RouterBalance::none;
  double aux_coefficient = 0;  ///< coefficient of the load-balancing loss
  double z_coefficient = 0;    ///< coefficient of the z-loss
  double seed = 0;             ///< gradient of the objective with respect to an auxiliary loss; 0: no auxiliary losses
  bool training = false;       ///< false: RouterBalance::sinkhorn chooses the largest scores, without Sinkhorn
  Leaf* bias = nullptr;        ///< [E] fp32, added to the scores for the selection only; null: no bias
  double capacity_factor = 0;  ///< capacity of an expert, relative to a balanced assignment; 0: no choice is dropped
  kernels::DropPolicy drop_policy = kernels::DropPolicy::probs;
  bool pads_experts = false;                ///< with a capacity, all experts have equal load: the bias gets no gradient
  std::int64_t sequences = 1;               ///< B: the tokens of the micro-batch are [B, S]
  const AssumedChoices* assumed = nullptr;  ///< choices for a pass that computes nothing; null: the router chooses
};

/// The ranks that each have some of the tokens of a micro-batch. The router decides on the logits of all these ranks
/// together, so that auxiliary losses, capacity and Sinkhorn normalization, which combine tokens, do not depend on how
/// the tokens are distributed. All ranks make the same calls in the same order.
class MicroBatchRanks {
 public:
  /// Number of tokens on all ranks together: B * S of whole sequences [B, S].
  virtual std::int64_t tokens() const = 0;
  /// Index in [B, S] of this rank's token `own`.
  virtual std::int64_t index(std::int64_t own) const = 0;
  /// All-gather: writes to `all` [tokens(), width] the row of every token at its index in [B, S]. `own` has the rows of
  /// this rank's tokens.
  virtual void gather(Tape& tape, std::span<const float> own, std::int64_t width, std::span<float> all) const = 0;

 protected:
  ~MicroBatchRanks() = default;
};

/// The experts that the tokens chose. The spans are valid until the tape is cleared.
struct ExpertChoices {
  std::int64_t experts = 0, topk = 0;    ///< E experts of the layer; K choices of each token
  std::span<const std::int32_t> chosen;  ///< [T, K] index of the chosen expert; -1: dropped
  Var weights;                           ///< [T, K] fp32; 0 for a dropped choice
  std::span<const float> counts;         ///< [E] choices of each expert in the whole micro-batch, before dropping
  std::span<const float> kept;           ///< [E] choices of each expert in the whole micro-batch, after dropping
  double aux_loss = 0;                   ///< the load-balancing loss without its coefficient; 0 if there is none
  double z_loss = 0;                     ///< the z-loss without its coefficient; 0 if there is none
  double gap = std::numeric_limits<double>::infinity();  ///< as choose_experts returns it; infinity for Sinkhorn
  const AssumedChoices* assumed = nullptr;               ///< if not null, the choices; `chosen` is then not written
  /// With `assumed`: maximum number of rows that this rank has for one expert.
  std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();
};

/// Chooses experts by `logits` [T, E], which are kept for the backward pass. If the logits are in a 16-bit type, the
/// weights are rounded to it, as in Megatron-LM.
///
/// The backward pass adds the gradients of the auxiliary losses to the gradient of the logits. It also accumulates the
/// load of the experts in the gradient of the bias: for expert e, E * kept[e] - sum of kept, that is E times the
/// difference between the load of e and the mean load, an integer.
///
/// With `ranks`, `logits` and the chosen experts and weights are those of this rank's tokens, [B, S / n] on n ranks;
/// losses, counts, capacity and load refer to the whole micro-batch and are the same on every rank. Throws ShapeError
/// if the extents do not match.
ExpertChoices route(const Var& logits, const RouterTerms& terms, const MicroBatchRanks* ranks = nullptr);

}  // namespace tessera::autograd
