#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/tensor/tensor.h"

namespace tessera {

/// The sizes of a Qwen2-VL that is written for a test.
struct TinyQwen2Vl {
  std::int64_t tower_layers = 3, tower_heads = 2, text_layers = 4, heads = 4, groups = 2, channels = 4;
  std::int64_t inner = 24, vocabulary = 24;
  bool tied = false, equal_ends = false;  ///< equal_ends: not tied, but the output layer equals the embedding

  std::int64_t tower_width() const { return 8 * tower_heads; }
  std::int64_t width() const { return heads * channels; }

  std::string config() const {
    return text(
        R"({"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "hidden_size": )", width(),
        R"(, "intermediate_size": )", inner, R"(, "num_hidden_layers": )", text_layers, R"(, "num_attention_heads": )",
        heads, R"(, "num_key_value_heads": )", groups, R"(, "vocab_size": )", vocabulary,
        R"(, "max_position_embeddings": 64, "rope_theta": 1000000.0, "tie_word_embeddings": )", tied ? "true" : "false",
        R"(, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 0]}, )",
        R"("image_token_id": 20, "video_token_id": 21, "vision_start_token_id": 22, "vision_end_token_id": 23, )",
        R"("vision_config": {"depth": )", tower_layers, R"(, "embed_dim": )", tower_width(), R"(, "hidden_size": )",
        width(), R"(, "num_heads": )", tower_heads,
        R"(, "mlp_ratio": 2, "in_channels": 3, "patch_size": 2, "spatial_merge_size": 2,)",
        R"( "temporal_patch_size": 2}})");
  }

  std::vector<std::pair<std::string, Shape>> tensors() const {
    const auto d = tower_width(), h = width(), kv = groups * channels;
    std::vector<std::pair<std::string, Shape>> all = {{"visual.patch_embed.proj.weight", {d, 3, 2, 2, 2}}};
    const auto add = [&](const std::string& name, const Shape& weight, std::int64_t bias) {
      all.emplace_back(name + ".weight", weight);
      if (bias > 0) all.emplace_back(name + ".bias", Shape{bias});
    };
    for (std::int64_t i = 0; i < tower_layers; ++i) {
      const auto block = text("visual.blocks.", i, ".");
      for (const char* norm : {"norm1", "norm2"}) add(block + norm, {d}, d);
      add(block + "attn.qkv", {3 * d, d}, 3 * d);
      add(block + "attn.proj", {d, d}, d);
      add(block + "mlp.fc1", {2 * d, d}, 2 * d);
      add(block + "mlp.fc2", {d, 2 * d}, d);
    }
    add("visual.merger.ln_q", {d}, d);
    add("visual.merger.mlp.0", {4 * d, 4 * d}, 4 * d);
    add("visual.merger.mlp.2", {h, 4 * d}, h);
    add("model.embed_tokens", {vocabulary, h}, 0);
    for (std::int64_t i = 0; i < text_layers; ++i) {
      const auto layer = text("model.layers.", i, ".");
      add(layer + "input_layernorm", {h}, 0);
      add(layer + "post_attention_layernorm", {h}, 0);
      add(layer + "self_attn.q_proj", {h, h}, h);
      add(layer + "self_attn.k_proj", {kv, h}, kv);
      add(layer + "self_attn.v_proj", {kv, h}, kv);
      add(layer + "self_attn.o_proj", {h, h}, 0);
      add(layer + "mlp.gate_proj", {inner, h}, 0);
      add(layer + "mlp.up_proj", {inner, h}, 0);
      add(layer + "mlp.down_proj", {h, inner}, 0);
    }
    add("model.norm", {h}, 0);
    if (!tied) add("lm_head", {vocabulary, h}, 0);
    return all;
  }

  /// Writes the folder: two files of weights, whose elements are 1, 2, 3, ... in the order of tensors(), and one of the
  /// tokenizer.
  void write(const std::filesystem::path& folder) const {
    make_folder(folder);
    write_file_atomic(folder / "config.json", config());
    write_file_atomic(folder / "tokenizer.json", "{}");
    const std::array<std::string, 2> files = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    std::array<std::vector<std::pair<std::string, checkpoint::SafetensorsEntry>>, 2> entries;
    std::map<std::string, std::vector<float>> elements;
    std::string map;
    float next = 1;
    const auto all = tensors();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [name, shape] = all[i];
      auto& values = elements[name];
      for (std::int64_t k = 0; k < shape.elements(); ++k) values.push_back(next++);
      if (equal_ends && name == "lm_head.weight") values = elements.at("model.embed_tokens.weight");
      const auto file = i < all.size() / 2 ? 0U : 1U;
      entries[file].push_back({name, {DType::float32, shape, 0, 0}});
      map += text(map.empty() ? "" : ", ", '"', name, R"(": ")", files[file], '"');
    }
    for (std::size_t i = 0; i < files.size(); ++i)
      checkpoint::write_safetensors_as_library(
          folder / files[i], entries[i], {{"format", "pt"}},
          [&](const std::string& name) { return std::as_bytes(std::span(elements.at(name))); });
    write_file_atomic(folder / "model.safetensors.index.json", text(R"({"weight_map": {)", map, "}}"));
  }
};

}  // namespace tessera
