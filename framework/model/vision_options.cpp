#include "framework/model/vision_options.h"

#include <algorithm>

#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using Vision = VisionOptions;

constexpr std::int64_t most_width = std::int64_t{1} << 20, most_heads = 65536;

void describe_sizes(options::Schema<Vision>& s) {
  s.option("num_layers", &Vision::num_layers, "Number of layers of the vision tower.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(options::most_layers);
  s.option("hidden_size", &Vision::hidden_size, "Hidden size of the vision tower.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(most_width)
      .must(
          "heads of the tower", [](const Vision& o) { return o.hidden_size % (4 * o.num_attention_heads) == 0; },
          [](const Vision& o) {
            return text("hidden_size is ", o.hidden_size, ", which is no multiple of 4 x num_attention_heads, ",
                        4 * o.num_attention_heads, ": a rotary embedding of rows and columns takes four of the ",
                        "dimensions of a head at a time");
          },
          "change one of them", {"num_attention_heads"});
  s.option("ffn_hidden_size", &Vision::ffn_hidden_size, "Hidden size of the tower's feed-forward network.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(4 * most_width)
      .otherwise([](const Vision& o) { return o.inner(); }, "4 x `hidden_size`");
  s.option("num_attention_heads", &Vision::num_attention_heads, "Number of attention heads of the vision tower.")
      .at_least(1)
      .at_most(most_heads);
}

void describe_patches(options::Schema<Vision>& s) {
  s.option("in_channels", &Vision::in_channels, "Channels of an image: 3 for RGB.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(64);
  s.option("patch_size", &Vision::patch_size, "Rows and columns of a patch, in pixels.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(256)
      .unit("pixels");
  s.option("temporal_patch_size", &Vision::temporal_patch_size, "Frames of a patch; a still image is repeated.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(64)
      .unit("frames");
  s.option("spatial_merge_size", &Vision::spatial_merge_size,
           "Rows and columns of patches that the merger joins to one feature, which takes the place of one token.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(16);
}

void describe_form(options::Schema<Vision>& s) {
  s.option("normalization", &Vision::normalization, "Normalization of the tower's layers and of the merger.");
  s.option("norm_epsilon", &Vision::norm_epsilon, "Epsilon that the tower's norms add to the variance or mean square.")
      .alias("layernorm_epsilon")
      .above(0)
      .at_most(1);
  s.option("hidden_act", &Vision::hidden_act, "Activation function of the tower's feed-forward network.")
      .alias("activation_func");
  s.option("gated_linear_unit", &Vision::gated_linear_unit, "The tower's feed-forward network is a gated linear unit.")
      .matters_when([](const Vision& o) { return !nn::is_gated(o.hidden_act); }, "`hidden_act` is a gated linear unit");
  s.option("add_bias_linear", &Vision::add_bias_linear, "Linear layers of the tower have biases.")
      .when_changed(options::Change::tensors);
  s.option("rotary_base", &Vision::rotary_base,
           "Base of the frequencies of the rotary embedding of rows and columns (theta).")
      .alias("rope_theta")
      .above(1)
      .at_most(1e12)
      .no_flag("a constant of MindSpeed-MM");
  s.option("window_size", &Vision::window_size,
           "Rows and columns of the windows of attention, in pixels, as Qwen2.5-VL has them; null: each patch sees its "
           "whole image or frame.")
      .at_least(1)
      .at_most(1 << 20)
      .unit("pixels")
      .no_flag("only Qwen2.5-VL has it, whose scripts are not converted")
      .must(
          "window_size", [](const Vision& o) { return !o.window_size || o.window_features() >= 1; },
          [](const Vision& o) {
            return text("window_size is ", *o.window_size, ", less than patch_size x spatial_merge_size, ",
                        o.patch_size * o.spatial_merge_size, ": a window has no feature");
          },
          "give a larger one", {"patch_size", "spatial_merge_size"});
  s.option("full_attention_layers", &Vision::full_attention_layers,
           "Layers, counted from 0, whose attention sees whole images in spite of `window_size`.")
      .alias("fullatt_block_indexes")
      .at_least(0)
      .at_most(options::most_layers)
      .no_flag("only Qwen2.5-VL has it, whose scripts are not converted")
      .matters_when([](const Vision& o) { return o.window_size.has_value(); }, "`window_size` is null")
      .must(
          "full_attention_layers",
          [](const Vision& o) {
            return std::ranges::all_of(o.full_attention_layers,
                                       [&](auto layer) { return layer >= 0 && layer < o.num_layers; });
          },
          [](const Vision& o) {
            return text("full_attention_layers is ",
                        options::OptionType<std::vector<std::int64_t>>::write(o.full_attention_layers),
                        "; expected layers from 0 to ", o.num_layers - 1);
          },
          "leave out the others", {"num_layers"});
  s.option("tokens_per_second", &Vision::tokens_per_second,
           "Positions of one second of a video, as Qwen2.5-VL has them; null: time steps are one position apart.")
      .above(0)
      .at_most(1e6)
      .no_flag("only Qwen2.5-VL has it, whose scripts are not converted");
  s.option("init_method_std", &Vision::init_method_std, "Standard deviation of the tower's initial weights.")
      .when_changed(options::Change::silent)
      .above(0)
      .at_most(options::most_rate);
}

void describe_tokens(options::Schema<Vision>& s) {
  s.option("image_token_id", &Vision::image_token_id, "Token that stands for a feature of an image.")
      .alias("img_context_token_id")
      .at_least(0)
      .at_most(options::most_tokens_known);
  s.option("video_token_id", &Vision::video_token_id, "Token that stands for a feature of a video.")
      .at_least(0)
      .at_most(options::most_tokens_known);
  s.option("vision_start_token_id", &Vision::vision_start_token_id,
           "Token before the placeholders of an image or video.")
      .at_least(0)
      .at_most(options::most_tokens_known);
}

}  // namespace

bool VisionOptions::windowed(std::int64_t layer) const {
  return window_size && std::ranges::find(full_attention_layers, layer) == full_attention_layers.end();
}

void describe(options::Schema<Vision>& s) {
  s.needs("visual encoder");
  s.when_changed(options::Change::weights);
  describe_sizes(s);
  describe_patches(s);
  describe_form(s);
  describe_tokens(s);
  s.option("feature_cache_path", &Vision::feature_cache_path,
           "Folder in which the features of each micro-batch's images are kept while tower and merger are frozen, so "
           "that later passes over the data do not run them; null: nowhere. Does not affect results.")
      .when_changed(options::Change::silent)
      .no_flag("only Tessera has it");
}

}  // namespace tessera::model
