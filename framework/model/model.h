#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/model/moe_options.h"
#include "framework/model/objective.h"
#include "framework/model/precision.h"
#include "framework/nn/auxiliary_log.h"
#include "framework/nn/layers.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"
#include "framework/options/schema.h"
#include "framework/parallel/context_parallel.h"
#include "framework/parallel/expert_parallel.h"
#include "framework/parallel/layer_plan.h"
#include "framework/tensor/batch.h"

namespace tessera::model {

/// Options of model_config that all architectures share.
struct ModelSizeOptions {
  std::int64_t seq_length = 0;  // in tokens
  std::optional<std::int64_t> vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;

  /// Number of rows of the embedding: vocab_size if given, else `tokenizer_size`, the number of tokens, rounded up to a
  /// multiple of make_vocab_size_divisible_by * tensor_ranks, as in Megatron-LM.
  std::int64_t padded_vocabulary(std::int64_t tokenizer_size, std::int64_t tensor_ranks = 1) const;
};
/// Declares the options.
void describe(options::Schema<ModelSizeOptions>& s);

class FeatureCache;

/// Arguments that a model is constructed from in addition to its architecture (architecture.h).
struct ModelParts {
  std::int64_t vocabulary = 0;  ///< rows of the embedding, including padding
  Precision precision = {};
  nn::TensorRank tensor = {};                            ///< this rank's part of tensor-parallel layers
  parallel::ContextLayout context = {};                  ///< this rank's tokens of each sample
  nn::ExpertRank expert = {};                            ///< this rank's experts
  std::optional<parallel::ModelChunk> chunk = {};        ///< the part to construct; absent: the whole model
  std::shared_ptr<const nn::AdapterPlan> adapters = {};  ///< adapters of linear layers, for the LayerMaker; null: none
  std::shared_ptr<FeatureCache> features = {};  ///< where features of a frozen vision tower are kept; null: nowhere
};

/// Settings of a forward pass.
struct ForwardMode {
  std::uint64_t seed = 0;  ///< random seed of dropout
  bool training = false;   ///< dropout is applied; routers and prediction layers compute their losses
  const Objective* objective = &summed_cross_entropy();  ///< what is minimised; never null
  StepShare share = {};                                  ///< weight of this micro-batch in the step
  /// Gradient of the objective with respect to an auxiliary loss of a router, before the loss is multiplied by its
  /// coefficient. Unless the objective sums over the step, also the gradient with respect to the mean loss of a
  /// prediction layer over the tokens of the micro-batch that count, before mtp_loss_scaling_factor.
  double auxiliary_seed = 0;
  nn::AuxiliaryLog* log = nullptr;  ///< receives the reports of a training step (report_extents); null: no reports
  const nn::Tap* tap = nullptr;     ///< observes named intermediate values; null: no observer
  const autograd::AssumedChoices* assumed = nullptr;  ///< for a pass that computes nothing; null: routers decide
  /// Communicators of a model that is sharded over ranks; must outlive the backward pass. Null: the model is whole.
  const parallel::ProcessGroups* groups = nullptr;
};

/// The result of a chunk: `loss` for the chunk with the loss, `hidden` for every other chunk.
struct ChunkResult {
  autograd::Var hidden;           ///< input of the next chunk, with the shape and type of Boundaries::output
  autograd::VocabularyLoss loss;  ///< loss of this rank's tokens of the micro-batch
};

/// A language model, or one pipeline chunk of a language model: the interface for training, evaluation and generation.
/// Modules declare the parameters and own no memory for them; the run binds it (training::ModelState).
class Model : public nn::Module {
 public:
  using nn::Module::Module;

  /// The forward pass of one micro-batch through this chunk. `x` is the output of the previous chunk; empty for the
  /// chunk with the embedding. `batch` has whole samples, also with context parallelism. If the tape records,
  /// tape.backward() then computes the gradients.
  virtual ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                              const ForwardMode& mode) const = 0;
  /// Shape and type of the activations that one chunk passes to the next.
  struct Boundary {
    Shape shape;
    DType type;
  };
  /// What this chunk receives from the chunk before, and what it gives to the chunk after. They differ in a chunk that
  /// ends in another tower than it begins in. Without a chunk before or after, that boundary means nothing.
  struct Boundaries {
    Boundary input, output;
  };
  /// The boundaries for a batch with the extents of `batch`. Throws BugError for an architecture that does not support
  /// chunks.
  virtual Boundaries boundary(const TokenBatch& batch) const;
  /// The loss of a micro-batch, for a model that is a single chunk.
  autograd::VocabularyLoss loss(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
    return forward(tape, {}, batch, mode).loss;
  }
  /// Logits [B, T, vocabulary] of all tokens, in fp32. Stores all of them: for inspection and small cases.
  virtual autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const = 0;

  /// A key/value cache for up to `capacity` tokens in each of `samples` sequences.
  virtual nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const = 0;
  /// Logits [B, vocabulary] of the token that follows the last of `tokens` [B, count]. These tokens follow the tokens
  /// in the cache, and their keys and values are added to it. `given`: these tokens as a batch, with their positions
  /// and images; null: tokens of text, at positions by the cache. Throws ShapeError if they exceed the capacity of the
  /// cache or the maximum sequence length.
  virtual autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                                    nn::KeyValueCache& cache, const TokenBatch* given = nullptr) const = 0;
  /// Whether tokens that next_logits has computed may be computed again, because their rotary frequencies depend on the
  /// number of tokens.
  virtual bool computes_again() const { return false; }
  /// Number of rows of the vocabulary, including padding.
  virtual std::int64_t vocabulary() const = 0;
  /// Maximum sequence length, in tokens.
  virtual std::int64_t most_positions() const = 0;

  /// Extents of the reports of routers and prediction layers in training, for the whole model.
  virtual nn::AuxiliaryLog::Extents auxiliary() const { return {}; }

  /// Floating-point operations of the forward and backward pass of this chunk, on all its tensor- and context-parallel
  /// ranks together, for `samples` sequences of `seq_length` tokens: 6 per token and weight of a matrix product, plus
  /// attention. Recomputation is not counted, and frozen weights as if they were trained. A vision tower is in
  /// image_flops().
  virtual double flops(std::int64_t samples, std::int64_t seq_length) const = 0;
  /// The same of this chunk's part of a vision tower for images: `grids` has the patches of each in time, height and
  /// width, one image after the other.
  virtual double image_flops(std::span<const std::int32_t> grids) const {
    (void)grids;
    return 0;
  }
};

/// Extents of all reports of a training step of `model` with `objective`.
inline nn::AuxiliaryLog::Extents report_extents(const Model& model, const Objective& objective) {
  auto extents = model.auxiliary();
  extents.metrics = static_cast<std::int64_t>(objective.metrics().size());
  return extents;
}

}  // namespace tessera::model
