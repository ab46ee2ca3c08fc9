#pragma once

#include "framework/model/architecture.h"
#include "framework/model/gpt_options.h"

namespace tessera::model {

/// The GPT family: one tower, the decoder; with a visual encoder a vision tower before it.
class GptArchitecture final : public Architecture {
 public:
  GptArchitecture(const GptOptions& options, ModelSettings settings) : o_(options), settings_(std::move(settings)) {}

  std::unique_ptr<Model> build(const ModelParts& parts) const override;
  std::optional<parallel::Towers> towers() const override;
  std::vector<std::string> size_options() const override;
  parallel::CutExtents cut_extents(const IsWrong& wrong) const override;
  std::int64_t experts() const override { return o_.experts(settings_.moe); }
  std::int64_t predictions() const override { return o_.predictions(); }
  std::int64_t embedding_layer() const override { return vision() ? vision()->num_layers : 0; }
  bool ties_embedding() const override { return !o_.untie_embeddings_and_output_weights && !o_.score_head; }
  const VisionOptions* vision() const override { return o_.use_visual_encoder ? &settings_.vision : nullptr; }
  std::int64_t table_bytes() const override;
  std::vector<BrokenRule> broken_rules(const IsWrong& wrong) const override;
  std::optional<options::Value> default_of(const std::string& option) const override;
  std::optional<WeightLayout> weight_layout() const override;
  std::optional<options::Value> canonical_options(const options::Value& resolved,
                                                  std::int64_t vocabulary) const override;

 private:
  std::int64_t expert_inner() const { return settings_.moe.moe_ffn_hidden_size.value_or(o_.inner()); }
  /// Maximum sequence length of the position embedding.
  std::int64_t positions() const { return o_.max_position_embeddings.value_or(settings_.seq_length); }
  void settle_attention(options::Value& whole) const;
  options::Value settled_experts(const options::Value& moe_config) const;
  void settle_feed_forward(options::Value& whole, const options::Value& moe_config) const;
  bool settle_vision(options::Value& whole, const options::Value& resolved) const;

  GptOptions o_;
  ModelSettings settings_;
};

/// Makes a GPT or a chunk of it. Throws ConfigError for options that break rules.
std::unique_ptr<Model> make_gpt_model(const GptOptions& options, const ModelSettings& settings,
                                      const ModelParts& parts);

}  // namespace tessera::model
