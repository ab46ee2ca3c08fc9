#pragma once

#include <memory>
#include <optional>

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/model/precision.h"
#include "framework/nn/module.h"
#include "framework/nn/pass.h"
#include "framework/options/registry.h"
#include "framework/parallel/tensor_parallel.h"

namespace tessera {

/// model_config, whatever the model: how long sequences are and how many tokens there are.
struct ModelSizeOptions {
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> vocab_size;
  std::int64_t make_vocab_size_divisible_by = 128;

  /// Rows of the embedding: vocab_size where it is given, else the tokenizer's size rounded up to what `tensor_ranks`
  /// share evenly, as Megatron-LM does.
  std::int64_t padded_vocabulary(std::int64_t tokenizer_size, std::int64_t tensor_ranks = 1) const;
};
void describe(Schema<ModelSizeOptions>& s);

/// A run of layers of a model, with what stands before and behind them: what one pipeline stage holds in one piece.
struct ModelChunk {
  bool embedding = true;               ///< tokens come in; else what the chunk before gives
  bool loss = true;                    ///< final norm, head and loss follow the layers
  std::int64_t first_layer = 0;        ///< of the whole model
  std::optional<std::int64_t> layers;  ///< nothing: all from first_layer on
  std::vector<std::int64_t> noop;      ///< layers, counted over the whole model, that pass on what they get
  /// The first layers of the chunk that are computed again whole, and how many of those behind them compute attention
  /// again; nothing: as model_config says.
  struct Recompute {
    std::int64_t layers = 0, attention = 0;
  };
  std::optional<Recompute> recompute;
};

/// What only the run knows when a model is made.
struct ModelParts {
  std::int64_t seq_length, vocabulary;  ///< vocabulary: with padding
  Precision precision = {};
  TensorParallel tensor = {};
  ModelChunk chunk = {};
};

/// The tokens of one micro batch, in memory that stays until the backward pass is done.
struct TokenBatch {
  std::int64_t samples = 0, seq_length = 0;
  std::span<const std::int32_t> tokens, labels, positions, document_start;  ///< [samples * seq_length]
  std::span<const float> loss_mask;                                         ///< [samples * seq_length]
  std::span<const std::int64_t> sample_ids;                                 ///< [samples]
  /// [samples, seq_length, seq_length], not 0 where a token (row) sees another: instead of documents and of looking
  /// back only. Empty: document_start says it. Slow; for masks of a form that nothing else says.
  std::span<const std::uint8_t> visible = {};
};

/// How a forward pass is made.
struct ForwardMode {
  std::uint64_t seed = 0;  ///< of dropout
  bool training = false;   ///< dropout is on
  double loss_seed = 1;    ///< d objective / d (sum of loss * mask)
  const Tap* tap = nullptr;
};

/// What a chunk gives: one of both.
struct ChunkResult {
  Var hidden;           ///< for the next chunk, of the shape and type that Model::boundary says
  VocabularyLoss loss;  ///< of a chunk with the loss
};

/// A language model, or a chunk of one: what training, evaluation and generation ask of any architecture. Its parts
/// declare parameters; memory is bound by the run.
class Model : public Module {
 public:
  using Module::Module;

  /// One micro batch through this chunk. `x` is what the chunk before gave, empty for the one with the embedding. With
  /// a recording tape, tape.backward() then completes the gradients.
  virtual ChunkResult forward(Tape& tape, const Var& x, const TokenBatch& batch, const ForwardMode& mode) const = 0;
  /// The shape and type of what chunks hand on for such a batch.
  struct Boundary {
    Shape shape;
    DType type;
  };
  virtual Boundary boundary(const TokenBatch& batch) const;  ///< of a model that is always one chunk: BugError
  /// Loss of a micro batch of a model in one chunk.
  VocabularyLoss loss(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
    return forward(tape, {}, batch, mode).loss;
  }
  /// Logits [B, T, vocabulary] of every position. Stores them all: for inspection and small cases.
  virtual Var logits(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const = 0;

  /// A cache for generating up to `capacity` tokens in each of `samples` sequences.
  virtual KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const = 0;
  /// Logits [B, vocabulary] after the last of `tokens` [B, count], which follow what the cache holds and join it.
  virtual Var next_logits(Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                          KeyValueCache& cache) const = 0;
  /// Rows of the vocabulary, padding included.
  virtual std::int64_t vocabulary() const = 0;
  /// Places there are: no sequence may be longer.
  virtual std::int64_t most_positions() const = 0;

  /// Floating-point operations of forward and backward for `samples` sequences of `seq_length`: 6 per weight of a
  /// product and token, plus causal attention.
  virtual double flops(std::int64_t samples, std::int64_t seq_length) const = 0;
};

using ModelRegistry = Registry<Model, ModelParts>;

/// The shelf with every built-in architecture.
ModelRegistry models();

}  // namespace tessera
