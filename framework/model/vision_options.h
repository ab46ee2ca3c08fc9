#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/model/gpt_options.h"
#include "framework/nn/feed_forward.h"
#include "framework/nn/layers.h"
#include "framework/options/schema.h"

namespace tessera::model {

/// Options of vision_config: the vision tower in front of a text model, with model_config.use_visual_encoder. It turns
/// the patches of images and videos into features, which replace the embeddings of placeholder tokens. Sizes as in
/// Qwen2-VL: Wang et al., arXiv:2409.12191.
struct VisionOptions {
  std::int64_t num_layers = 32;
  std::int64_t hidden_size = 1280;
  std::optional<std::int64_t> ffn_hidden_size;
  std::int64_t num_attention_heads = 16;
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 14;
  std::int64_t temporal_patch_size = 2;
  std::int64_t spatial_merge_size = 2;
  nn::Normalization normalization = nn::Normalization::layer_norm;
  double norm_epsilon = 1e-6;
  nn::FeedForwardKind hidden_act = nn::FeedForwardKind::quick_gelu;
  bool gated_linear_unit = false;
  bool add_bias_linear = true;
  double rotary_base = 10000;
  std::optional<std::int64_t> window_size;
  std::vector<std::int64_t> full_attention_layers;
  std::optional<double> tokens_per_second;
  double init_method_std = 0.02;
  std::int64_t image_token_id = 151655;
  std::int64_t video_token_id = 151656;
  std::int64_t vision_start_token_id = 151652;
  std::optional<std::string> feature_cache_path;

  // Values derived from the options.
  std::int64_t channels() const { return num_attention_heads > 0 ? hidden_size / num_attention_heads : 0; }
  std::int64_t inner() const { return ffn_hidden_size.value_or(4 * hidden_size); }
  /// Elements of a patch: channels x frames x rows x columns.
  std::int64_t patch_width() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
  /// Patches that the merger joins to one feature.
  std::int64_t merged() const { return spatial_merge_size * spatial_merge_size; }
  /// Input and hidden size of the merger.
  std::int64_t merged_width() const { return hidden_size * merged(); }
  /// Rows and columns of features in a window of attention; 0: attention sees whole images.
  std::int64_t window_features() const { return window_size.value_or(0) / (patch_size * spatial_merge_size); }
  /// Whether layer `layer` sees only the patches of its window.
  bool windowed(std::int64_t layer) const;
  nn::FeedForwardKind feed_forward() const { return gated_linear_unit ? nn::gated(hidden_act) : hidden_act; }
  nn::NormKind norm() const { return {normalization, norm_epsilon, false}; }
  /// Whether a token stands for a feature of an image or of a video.
  bool is_placeholder(std::int32_t token) const { return token == image_token_id || token == video_token_id; }
};
/// Declares the options.
void describe(options::Schema<VisionOptions>& s);

}  // namespace tessera::model
