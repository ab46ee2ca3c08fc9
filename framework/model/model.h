#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/model/moe_options.h"
#include "framework/model/precision.h"
#include "framework/nn/auxiliary_log.h"
#include "framework/nn/layers.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"
#include "framework/options/registry.h"
#include "framework/parallel/context_parallel.h"
#include "framework/parallel/expert_parallel.h"
#include "framework/tensor/batch.h"

namespace tessera::model {

/// Options of model_config that all architectures share.
struct ModelSizeOptions {
  // In tokens.
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;

  /// Rows of the embedding: vocab_size if given, else the tokenizer's size rounded up to a multiple of
  /// make_vocab_size_divisible_by * tensor_ranks, as in Megatron-LM.
  std::int64_t padded_vocabulary(std::int64_t tokenizer_size, std::int64_t tensor_ranks = 1) const;
};
/// Declares the options.
void describe(options::Schema<ModelSizeOptions>& s);

/// Which part of a model to construct: a range of layers with what precedes and follows them, for one pipeline chunk.
struct ModelChunk {
  bool embedding = true;               ///< has the embedding; else its input is the previous chunk's output
  bool loss = true;                    ///< has the final norm, output layer and loss
  std::int64_t first_layer = 0;        ///< index in the whole model
  std::optional<std::int64_t> layers;  ///< absent: all layers from first_layer on
  std::vector<std::int64_t> noop;      ///< indices in the whole model of layers that do nothing
  int chunk = 0, chunks = 1;           ///< its index among the chunks of its stage, and their number
  /// Activation recomputation: the number of layers at the beginning that are recomputed as a whole, and the number of
  /// following layers that recompute attention; absent: as model_config says.
  struct Recompute {
    std::int64_t layers = 0, attention = 0;
  };
  std::optional<Recompute> recompute;
};

/// What a model is constructed from besides its options.
struct ModelParts {
  std::int64_t seq_length = 0, vocabulary = 0;  ///< vocabulary: rows, including padding
  Precision precision = {};
  MoeOptions moe = {};
  nn::TensorRank tensor = {};            ///< whose part of the layers
  parallel::ContextLayout context = {};  ///< and which tokens of each sample
  nn::ExpertRank expert = {};            ///< and which experts
  ModelChunk chunk = {};
};

/// Settings of a forward pass.
struct ForwardMode {
  std::uint64_t seed = 0;    ///< of dropout
  bool training = false;     ///< dropout is on
  double loss_seed = 1;      ///< gradient of the objective with respect to the sum of loss * mask
  bool sums_losses = false;  ///< the objective sums losses of tokens (calculate_per_token_loss), not means
  /// Gradient of the objective with respect to an auxiliary loss of a router, before its coefficient. Without
  /// sums_losses also that with respect to a mean over the tokens of the micro-batch that count.
  double auxiliary_seed = 0;
  nn::AuxiliaryLog* log = nullptr;  ///< where routers and prediction layers report while training; null: nowhere
  const nn::Tap* tap = nullptr;
  const autograd::AssumedChoices* assumed = nullptr;  ///< of a pass that computes nothing; null: routers decide
  const parallel::ProcessGroups* groups =
      nullptr;  ///< for a model that is sharded over ranks; must outlive the backward pass
};

/// The result of a chunk; only one of the two is set.
struct ChunkResult {
  autograd::Var hidden;           ///< the input of the next chunk, of the shape and type of Model::boundary
  autograd::VocabularyLoss loss;  ///< of the chunk with the loss
};

/// A language model, or a pipeline chunk of one: the interface for training, evaluation and generation. Modules declare
/// the parameters; the run binds their memory.
class Model : public nn::Module {
 public:
  using nn::Module::Module;

  /// The forward pass of one micro-batch through this chunk. `x` is the output of the previous chunk, empty for the
  /// chunk with the embedding. If the tape records, tape.backward() then computes the gradients.
  virtual ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                              const ForwardMode& mode) const = 0;
  /// Shape and type of the activations that are passed between chunks for such a batch. Throws BugError for an
  /// architecture that does not support chunks.
  struct Boundary {
    Shape shape;
    DType type;
  };
  virtual Boundary boundary(const TokenBatch& batch) const;
  /// The loss of a micro-batch, for a model that is a single chunk.
  autograd::VocabularyLoss loss(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
    return forward(tape, {}, batch, mode).loss;
  }
  /// Logits [B, T, vocabulary] of all positions. Stores all of them: for inspection and small cases.
  virtual autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const = 0;

  /// A key/value cache for up to `capacity` tokens in each of `samples` sequences.
  virtual nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const = 0;
  /// Logits [B, vocabulary] after the last of `tokens` [B, count], which follow the tokens in the cache and are added
  /// to it. Throws ShapeError if they exceed the cache or the maximum sequence length.
  virtual autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                                    nn::KeyValueCache& cache) const = 0;
  /// Rows of the vocabulary, including padding.
  virtual std::int64_t vocabulary() const = 0;
  /// Maximum sequence length, in tokens.
  virtual std::int64_t most_positions() const = 0;

  /// What its routers and prediction layers report in training, of the whole model.
  virtual nn::AuxiliaryLog::Extents auxiliary() const { return {}; }

  /// Floating-point operations of forward and backward pass for `samples` sequences of `seq_length` tokens: 6 per
  /// weight of a matrix product and token, plus causal attention. Recomputation is not counted.
  virtual double flops(std::int64_t samples, std::int64_t seq_length) const = 0;
};

using ModelRegistry = options::Registry<Model, ModelParts>;

/// The registry with all built-in architectures.
ModelRegistry models();

}  // namespace tessera::model
