#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "framework/model/gpt_architecture.h"
#include "framework/model/layer_sizes.h"
#include "framework/model/objective_loss.h"
#include "framework/model/prediction_layer.h"
#include "framework/model/transformer_layer.h"
#include "framework/model/vision_front.h"
#include "framework/model/word_adapter.h"
#include "framework/parallel/context_parallel.h"
#include "framework/parallel/expert_parallel.h"
#include "framework/parallel/tensor_parallel.h"

namespace tessera::model {

/// The GPT family: embedding, layers, final norm, output layer, or a chunk of them; each part is selected by options.
/// Used through Model; gpt_model.cpp has the passes, gpt_assembly.cpp makes the parts.
///
/// Sources: Radford et al. 2019 (GPT-2); Touvron et al., arXiv:2302.13971 (Llama); names and layouts as in Megatron
/// core's GPTModel.
class GptModel final : public Model {
 public:
  GptModel(const GptOptions& options, const ModelSettings& settings, const ModelParts& parts);

  ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                      const ForwardMode& mode) const override;
  Boundaries boundary(const TokenBatch& batch) const override;
  autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const override;
  nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const override;
  autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                            nn::KeyValueCache& cache, const TokenBatch* given) const override;
  bool computes_again() const override { return o_.has_longrope(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t most_positions() const override { return positions_; }
  double flops(std::int64_t samples, std::int64_t seq_length) const override {
    return training_flops(o_, moe_, chunk_, o_.score_head ? 1 : vocabulary_, samples, seq_length);
  }
  double image_flops(std::span<const std::int32_t> grids) const override { return vision_ ? vision_->flops(grids) : 0; }
  nn::AuxiliaryLog::Extents auxiliary() const override {
    return {.layers = experts_ > 0 ? o_.num_layers + o_.predictions() : 0,
            .experts = experts_,
            .predictions = o_.predictions(),
            .balances = experts_ > 0 && moe_.balances(),
            .has_z_loss = experts_ > 0 && moe_.moe_z_loss_coeff.has_value(),
            .per_layer = moe_.moe_per_layer_logging};
  }

 private:
  TransformerLayer::Submodules layer_parts(const std::string& name, std::int64_t number,
                                           bool recomputes_activation) const;
  std::unique_ptr<nn::Attention> make_attention(const std::string& name, std::int64_t layer) const;
  std::unique_ptr<TransformerLayer> make_layer(const std::string& name, std::int64_t number,
                                               std::optional<std::int64_t> at) const;
  autograd::Var through_layers(autograd::Var x, const nn::Pass& pass) const;
  autograd::Var project(const autograd::Var& h, const nn::Pass& pass) const;
  autograd::Var before_head(autograd::Var h, const nn::Pass& pass) const;
  std::int64_t tokens_between_layers(std::int64_t length) const;
  nn::TokenAngles angles(autograd::Tape& tape, const nn::Pass& pass) const;
  std::span<const std::int32_t> table_rows(autograd::Tape& tape, std::span<const std::int32_t> positions) const;
  nn::Pass pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const;
  autograd::Var embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                         std::uint64_t site = 0) const;
  autograd::Var embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                  const nn::Pass& pass) const;
  VisionFront::Seen seen(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch, const ForwardMode& mode,
                         const nn::Pass& pass) const;
  autograd::Var hidden(autograd::Tape& tape, VisionFront::Seen seen, std::span<const std::int32_t> tokens,
                       const nn::Pass& pass) const;
  autograd::Leaf& head() const { return output_ ? output_->weight() : words_->leaf; }
  autograd::Leaf* head_bias() const { return output_bias_ ? &output_bias_->leaf : nullptr; }
  OutputLayer output_layer(const autograd::Var& h, const nn::Pass& pass) const;
  void predict_further(autograd::Tape& tape, autograd::Var h, const TokenBatch& batch, const ForwardMode& mode,
                       const nn::Pass& pass) const;
  bool recomputes_attention(std::int64_t layer) const;
  bool tied() const { return !o_.untie_embeddings_and_output_weights && !o_.score_head; }
  void declare_tables();
  void add_layers();
  void add_head();
  void add_predictions();
  void set_types();
  void share_copies();

  GptOptions o_;
  MoeOptions moe_;
  std::int64_t experts_;  ///< of each mixture of experts; 0: the model has none
  Precision precision_;
  parallel::ModelChunk chunk_;
  nn::TensorRank tensor_;
  nn::ContextRank context_;
  nn::ExpertRank expert_;
  std::optional<parallel::ContextParallelAttention> shared_attention_;  ///< if ranks share each sequence
  std::optional<parallel::ExpertParallel> shared_experts_;  ///< if ranks share experts, or tokens of a micro-batch
  parallel::TensorParallelLayers maker_;
  std::unique_ptr<VisionFront> vision_;  ///< null: the model reads no images
  std::int64_t vocabulary_, positions_, seq_length_;
  std::optional<nn::RotaryEmbedding> rotary_;
  std::optional<nn::RotaryEmbedding> local_rotary_;  ///< of layers with an attention window, if it differs
  nn::Parameter* words_ = nullptr;                   ///< of the embedding, and of an output layer tied to it
  std::unique_ptr<WordAdapter> word_adapter_;
  nn::Parameter* position_table_ = nullptr;
  std::unique_ptr<nn::Norm> embedding_norm_;               ///< of the word embeddings; null: none
  std::vector<std::unique_ptr<TransformerLayer>> layers_;  ///< of this chunk, without no-op layers
  std::unique_ptr<nn::Norm> final_norm_;
  std::unique_ptr<nn::LinearLayer> output_;
  nn::Parameter* output_bias_ = nullptr;
  nn::Parameter* score_ = nullptr;                             ///< in place of the output layer
  std::vector<std::unique_ptr<PredictionLayer>> predictions_;  ///< of the chunk with the loss
};

}  // namespace tessera::model
