#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/options/registry.h"
#include "framework/tensor/batch.h"

namespace tessera::model {

class ReferenceScores;

/// Weight of a micro-batch's objective in the gradient of a step.
struct StepShare {
  double scale = 1;          ///< factor of all gradients: the loss scale
  double micro_batches = 1;  ///< micro-batches of the step on each rank
  double replicas = 1;       ///< data-parallel ranks
  double parts() const { return micro_batches * replicas; }
};

/// The weights of token losses in the objective of a step: seed * each[i] for token i.
struct TokenWeights {
  double seed = 0;
  std::span<const float> each = {};  ///< [samples, seq_length], valid until the tape is cleared; empty: the loss mask
};

/// The function that training minimises: of a micro-batch's token losses -log p(label), and of all fields of its batch.
/// Immutable, and used by all chunks and ranks of a run; one object serves all steps.
///
/// There are two kinds. If the weight of each token is known before the forward pass (weighs_tokens), the output layer
/// computes loss and gradient in one pass over the logits. Any other function of the losses, such as one that couples
/// several samples, gives the weights in judge(), after the forward pass; if the output layer is trained, the backward
/// pass then computes the logits a second time. In both cases logits are stored for some rows at a time only.
///
/// With tensor, sequence or context parallelism every rank calls the same function with the same arguments: the batch
/// has whole samples, and the losses of all tokens are exchanged before judge(). So an objective needs no communicator.
class Objective {
 public:
  virtual ~Objective() = default;

  /// Whether the weights are known before the forward pass: weigh() is called, else judge().
  virtual bool weighs_tokens() const { return false; }
  /// The weights of the tokens of `batch`. The loss that is reported is the mean of the token losses, weighted with the
  /// loss mask.
  virtual TokenWeights weigh(autograd::Tape& tape, const TokenBatch& batch, const StepShare& share) const;

  /// What judge() works with.
  struct Losses {
    const TokenBatch& batch;
    std::span<const float> each;  ///< [samples, seq_length]: -log p(label); 0 without a label
    StepShare share;
  };
  /// Returns the value of the objective as a sum and the number of terms in it (tokens, pairs, ...), not multiplied by
  /// the share; the loss that is reported is the sum over the step divided by that number. Writes the gradient of
  /// the step's objective with respect to each token loss, with the share, into `seeds` [samples, seq_length]; they are
  /// 0 before, and empty in an evaluation. Adds the values of metrics() to `metrics`,
  /// which is empty if there are none.
  virtual autograd::LossSum judge(const Losses& losses, std::span<float> seeds,
                                  std::span<autograd::LossSum> metrics) const;
  /// Names of further values that are reported, each as its sum over the step divided by its count.
  virtual std::vector<std::string> metrics() const { return {}; }

  /// The objective of a pass of the reference model, which must see each micro-batch before judge() does; null: no
  /// reference model is needed.
  virtual const ReferenceScores* reference() const { return nullptr; }

  /// Whether the objective is the sum over the step divided by the number of its terms; else it is a mean over
  /// micro-batches and data-parallel ranks. The gradients of a sum are divided after the reduction, so seeds contain
  /// neither the number of terms nor StepShare::parts().
  /// The terms of such a sum must be tokens: auxiliary losses of routers are scaled by the tokens of the micro-batch.
  virtual bool sums_over_step() const { return false; }
};

/// Key `objective` of training_config.
using ObjectiveRegistry = options::Registry<Objective>;

/// The registry with all built-in objectives.
ObjectiveRegistry objectives();

/// The cross-entropy, averaged over the tokens of each micro-batch.
const Objective& mean_cross_entropy();
/// The cross-entropy summed over all tokens that count, times StepShare::scale: what calculate_per_token_loss chooses.
const Objective& summed_cross_entropy();

}  // namespace tessera::model
