#pragma once

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "framework/autograd/ops/embedding.h"
#include "framework/model/architecture.h"
#include "framework/model/objective_loss.h"
#include "framework/model/transformer_layer.h"
#include "framework/model/visibility.h"
#include "framework/parallel/tensor_parallel.h"
#include "framework/parallel/tensor_parallel_ops.h"
#include "tests/training/stand_in_model.h"

// An architecture beside the GPT: an encoder and a decoder of different widths, with options of its own. A causal
// encoder reads the tokens; a projection before the first decoder layer takes its output to the decoder's width.

namespace tessera {

struct TwoTowersOptions {
  std::int64_t encoder_layers = 0, encoder_width = 0, encoder_heads = 2;
  std::int64_t decoder_layers = 0, decoder_width = 0, decoder_heads = 2;
};

inline void describe(options::Schema<TwoTowersOptions>& s) {
  using O = TwoTowersOptions;
  s.when_changed(options::Change::tensors);
  s.option("encoder_layers", &O::encoder_layers, "Number of layers of the encoder.").at_least(1).at_most(64);
  s.option("encoder_width", &O::encoder_width, "Hidden size of the encoder.").at_least(1).at_most(4096);
  s.option("encoder_heads", &O::encoder_heads, "Number of attention heads of the encoder.").at_least(1).at_most(64);
  s.option("decoder_layers", &O::decoder_layers, "Number of layers of the decoder.").at_least(1).at_most(64);
  s.option("decoder_width", &O::decoder_width, "Hidden size of the decoder.")
      .at_least(1)
      .at_most(4096)
      .must(
          "two towers", [](const O& o) { return o.decoder_width >= o.encoder_width; },
          [](const O& o) {
            return text("decoder_width is ", o.decoder_width, ", but encoder_width is ", o.encoder_width);
          },
          "give the decoder at least the width of the encoder", {"encoder_width"});
  s.option("decoder_heads", &O::decoder_heads, "Number of attention heads of the decoder.").at_least(1).at_most(64);
}

class TwoTowersModel final : public training::StandInModel {
 public:
  TwoTowersModel(const TwoTowersOptions& o, const parallel::Towers& towers, const model::ModelParts& parts)
      : o_(o),
        towers_(towers),
        chunk_(parts.chunk.value_or(parallel::LayerPlan(towers).at(0, 0))),
        precision_(parts.precision),
        tensor_(parts.tensor),
        vocabulary_(parts.vocabulary),
        maker_(tensor_, parts.adapters) {
    if (!parts.context.rank.whole() || tensor_.cuts_sequence())
      throw ConfigError("two_towers has neither context nor sequence parallelism; leave both out");
    if (chunk_.embedding)
      words_ = &declare("words.weight", ParameterRole::word_embedding, {vocabulary_, o_.encoder_width},
                        nn::Init::normal(0.3), tensor_.part(0, vocabulary_, "rows of the word embedding"));
    for (const auto& part : towers_.parts(chunk_)) add_layers(part);
    if (chunk_.loss) add_head();
    for (auto* parameter : parameters()) {
      parameter->type = precision_.params;
      const bool copied = parameter->cut.strips.empty() && tensor_.rank > 0;
      if (copied) parameter->cut = nn::TensorCut::copy(parameter->global_shape[0]);
    }
  }

  model::ChunkResult forward(autograd::Tape& tape, const autograd::Var& given, const TokenBatch& batch,
                             const model::ForwardMode& mode) const override {
    const auto pass = model::training_pass(tape, batch, mode, {-1, 0});
    tape.computes_in(precision_.compute);
    auto x = chunk_.embedding ? embedded(tape, batch.tokens, pass) : given;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (bridge_ && i == before_bridge_) x = bridge_->forward(x, o_.decoder_width, pass).own;
      x = layers_[i]->forward(std::move(x), pass);
    }
    if (!chunk_.loss) return {std::move(x), {}};
    x = norm_->forward(x);
    tape.computes_in(DType::float32);
    return {{}, loss_of(tape, x, batch, pass, mode)};
  }

  Boundaries boundary(const TokenBatch& batch) const override {
    const auto after = [&](std::int64_t layers) {
      const auto width = layers <= o_.encoder_layers ? o_.encoder_width : o_.decoder_width;
      return Boundary{{batch.samples, batch.seq_length, width}, precision_.residual};
    };
    return {after(chunk_.first_layer), after(chunk_.end_layer())};
  }
  std::int64_t vocabulary() const override { return vocabulary_; }

 private:
  void add_layers(const parallel::Towers::Part& part) {
    if (part.tower == 1 && part.first == 0) {
      before_bridge_ = layers_.size();
      bridge_ = maker_.gathered("bridge", {.in = o_.encoder_width, .out = o_.decoder_width, .init = init()});
      contains(*bridge_);
    }
    for (auto i = part.first; i < part.first + part.layers; ++i) {
      layers_.push_back(make_layer(part.tower, i));
      contains(*layers_.back());
    }
  }

  std::unique_ptr<model::TransformerLayer> make_layer(std::size_t tower, std::int64_t index) const {
    const auto& of = towers_.all()[tower];
    const auto name = text(of.name, ".layers.", index);
    const auto number = index + (tower == 0 ? 0 : o_.encoder_layers);
    const auto width = tower == 0 ? o_.encoder_width : o_.decoder_width;
    nn::AttentionSizes sizes;
    sizes.hidden = width;
    sizes.heads = sizes.groups = tower == 0 ? o_.encoder_heads : o_.decoder_heads;
    sizes.channels = width / sizes.heads;
    sizes.init = sizes.out_init = init();
    model::TransformerLayer::Submodules parts;
    parts.before_attention = nn::make_norm({}, name + ".input_layernorm", width);
    parts.before_feed_forward = nn::make_norm({}, name + ".pre_mlp_layernorm", width);
    parts.attention = std::make_unique<nn::SelfAttention>(name + ".self_attention", number, sizes, nullptr, maker_);
    parts.feed_forward =
        nn::make_feed_forward(nn::FeedForwardKind::gelu_tanh, name + ".mlp",
                              {.hidden = width, .inner = 2 * width, .init = init(), .out_init = init()}, maker_);
    return std::make_unique<model::TransformerLayer>(name, number, model::LayerForm{.dropout = 0.1}, std::move(parts));
  }

  void add_head() {
    norm_ = nn::make_norm({}, "final_layernorm", o_.decoder_width);
    contains(*norm_);
    output_ = maker_.column_parallel(
        "output_layer",
        {.in = o_.decoder_width, .out = vocabulary_, .init = init(), .role = ParameterRole::output_layer},
        tensor_.part(0, vocabulary_, "rows of the output layer"));
    contains(*output_);
  }

  autograd::Var embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass) const {
    if (tensor_.whole())
      return autograd::embedding(tape, {pass.B, pass.T}, tokens, words_->leaf, {}, nullptr, precision_.residual);
    return parallel::vocab_parallel_embedding(tape, tokens, words_->leaf, vocabulary_, tensor_, pass,
                                              precision_.residual);
  }

  autograd::VocabularyLoss loss_of(autograd::Tape& tape, autograd::Var x, const TokenBatch& batch, const nn::Pass& pass,
                                   const model::ForwardMode& mode) const {
    model::OutputLayer output{.weight = output_->weight()};
    if (!tensor_.whole()) {
      const auto& group = parallel::tensor_group(pass, tensor_);
      output.sharers =
          new (tape.keep(sizeof(parallel::VocabParallelHead)).data()) parallel::VocabParallelHead(group, vocabulary_);
      x = parallel::copy_to_tensor_region(x, group, "output layer");
    }
    return model::objective_loss(x, output, batch, mode);
  }

  static nn::Init init() { return nn::Init::normal(0.2); }

  TwoTowersOptions o_;
  parallel::Towers towers_;
  parallel::ModelChunk chunk_;
  model::Precision precision_;
  nn::TensorRank tensor_;
  std::int64_t vocabulary_;
  parallel::TensorParallelLayers maker_;
  nn::Parameter* words_ = nullptr;
  std::unique_ptr<nn::GatheredLinear> bridge_;  ///< before the first layer of the decoder
  std::size_t before_bridge_ = 0;               ///< layers of this chunk before it
  std::vector<std::unique_ptr<model::TransformerLayer>> layers_;
  std::unique_ptr<nn::Norm> norm_;
  std::unique_ptr<nn::ActivatedLinearLayer> output_;
};

class TwoTowers final : public model::Architecture {
 public:
  TwoTowers(const TwoTowersOptions& options, model::ModelSettings settings)
      : o_(options), settings_(std::move(settings)) {}

  std::unique_ptr<model::Model> build(const model::ModelParts& parts) const override {
    return std::make_unique<TwoTowersModel>(o_, *towers(), parts);
  }
  std::optional<parallel::Towers> towers() const override {
    return parallel::Towers({{"encoder", "model_config.encoder_layers", o_.encoder_layers},
                             {"decoder", "model_config.decoder_layers", o_.decoder_layers}});
  }
  std::vector<std::string> size_options() const override {
    return {"model_config.encoder_layers", "model_config.encoder_width", "model_config.encoder_heads",
            "model_config.decoder_layers", "model_config.decoder_width", "model_config.decoder_heads"};
  }
  parallel::CutExtents cut_extents(const IsWrong&) const override {
    const std::string encoder = "model_config.encoder_", decoder = "model_config.decoder_";
    return {.heads = {{o_.encoder_heads, o_.encoder_heads, encoder + "heads", encoder + "heads"},
                      {o_.decoder_heads, o_.decoder_heads, decoder + "heads", decoder + "heads"}},
            .gathered = {{decoder + "width", "decoder_width", o_.decoder_width}}};
  }
  /// The heads of each tower, and samples of whole blocks of four tokens.
  std::vector<model::BrokenRule> broken_rules(const IsWrong& wrong) const override {
    std::vector<model::BrokenRule> all;
    if (!wrong("model_config.seq_length") && settings_.seq_length % 4 != 0)
      all.push_back({{.option = "model_config.encoder_layers",
                      .message = text("the encoder reads blocks of 4 tokens, but seq_length is ", settings_.seq_length),
                      .advice = "give a multiple of 4",
                      .rule = "two towers"},
                     {"model_config.seq_length"}});
    return all;
  }
  std::optional<model::WeightLayout> weight_layout() const override {
    return model::WeightLayout{.towers = *towers(),
                               .heads = {{o_.encoder_heads, o_.encoder_heads, o_.encoder_width / o_.encoder_heads},
                                         {o_.decoder_heads, o_.decoder_heads, o_.decoder_width / o_.decoder_heads}}};
  }

 private:
  TwoTowersOptions o_;
  model::ModelSettings settings_;
};

inline std::unique_ptr<model::Architecture> make_two_towers(const TwoTowersOptions& o, model::ModelSettings settings) {
  return std::make_unique<TwoTowers>(o, std::move(settings));
}

}  // namespace tessera
