#pragma once

#include <limits>

#include "framework/autograd/tape.h"
#include "framework/kernels/expert_rows.h"
#include "framework/kernels/router.h"

namespace tessera::autograd {

/// Which auxiliary loss balances the load of the experts; kernels/router.h and docs/experts.md have the formulas.
enum class RouterBalance { none, aux_loss, seq_aux_loss, sinkhorn };

/// Which experts tokens choose where nothing is computed (kernels::Threads::Idle), so that memory is counted.
struct AssumedChoices {
  enum class Spread {
    balanced,  ///< every expert is chosen equally often
    here,      ///< tokens choose experts of this rank, each equally often; only what is left of their choices, others
    elsewhere  ///< the opposite
  };
  Spread spread = Spread::balanced;
  std::int64_t first = 0, count = 0;  ///< experts of this rank

  /// first_row [E + 1]: the rows of `tokens` tokens with `topk` choices each, as kernels::sort_choices writes it. An
  /// expert gets `most` rows, the others are dropped.
  void sort(std::int64_t tokens, std::int64_t topk, std::int64_t most, std::span<std::int64_t> first_row) const;
};

/// How a router works, besides its weight. Owns nothing.
struct RouterTerms {
  kernels::RouterRule rule;
  RouterBalance balance = RouterBalance::none;
  double aux_coefficient = 0;  ///< of the balancing loss
  double z_coefficient = 0;    ///< of the z loss
  double seed = 0;             ///< gradient of the objective with respect to an auxiliary loss; 0: no losses
  bool training = false;       ///< Sinkhorn chooses and losses count
  Leaf* bias = nullptr;        ///< [E] fp32, added to the scores for the selection; null: none
  double capacity_factor = 0;  ///< 0: nothing is dropped
  kernels::DropPolicy drop_policy = kernels::DropPolicy::probs;
  std::int64_t sequences = 1;               ///< B: the tokens are [B, S]
  const AssumedChoices* assumed = nullptr;  ///< null: the router decides
};

/// The ranks that each have some of the tokens of a micro-batch. A router decides for all of them together, so that
/// what couples tokens (auxiliary losses, capacity, Sinkhorn) does not depend on who has which. All ranks make the same
/// calls in the same order.
class MicroBatchRanks {
 public:
  /// Tokens on all ranks: whole sequences [B, S].
  virtual std::int64_t tokens() const = 0;
  /// The index among these of token `own` of this rank.
  virtual std::int64_t index(std::int64_t own) const = 0;
  /// all [tokens(), width] = the rows of every rank, each at its index. `own` has the rows of this rank.
  virtual void gather(Tape& tape, std::span<const float> own, std::int64_t width, std::span<float> all) const = 0;

 protected:
  ~MicroBatchRanks() = default;
};

/// The experts that the tokens chose. The spans live as long as the tape's pass.
struct ExpertChoices {
  std::int64_t experts = 0, topk = 0;
  std::span<const std::int32_t> chosen;  ///< [T, K]; -1: dropped
  Var weights;                           ///< [T, K] fp32; 0 where dropped
  std::span<const float> counts;         ///< [E] choices of each expert before dropping, of the whole micro-batch
  std::span<const float> kept;           ///< [E] likewise those that were not dropped
  double aux_loss = 0;                   ///< the balancing loss without its coefficient; 0 where there is none
  double z_loss = 0;                     ///< likewise
  double gap = std::numeric_limits<double>::infinity();  ///< as choose_experts returns it; infinity for Sinkhorn
  const AssumedChoices* assumed = nullptr;               ///< not null: `chosen` was not written; these are the choices
  std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();  ///< with `assumed`: of an expert, from this rank
};

/// Chooses experts by `logits` [T, E], which are kept. In 16 bits the weights are rounded to the type of the logits, as
/// in Megatron-LM. If the tape records, the backward pass adds the gradients of the auxiliary losses to that of the
/// logits. It adds to that of the bias, for each expert, E times the choices of it that were not dropped less those of
/// all experts: its load compared with the mean, in whole numbers. With `ranks`, logits are those of this rank's tokens
/// [B, S / n], and so are the choices; losses, counts, capacity and load are those of the whole micro-batch, on every
/// rank. Throws ShapeError if the extents do not match.
ExpertChoices route(const Var& logits, const RouterTerms& terms, const MicroBatchRanks* ranks = nullptr);

}  // namespace tessera::autograd
