#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "framework/model/vision_items.h"
#include "framework/tensor/batch.h"

namespace tessera::model {

/// Options of a small model with a vision tower, for Built: patches of 2 channels x 1 frame x 2 rows x 2 columns.
inline const std::string small_vision =
    "use_visual_encoder:true position_embedding_type:mrope mrope_section[0]:1 mrope_section[1]:1 mrope_section[2]:0 "
    "normalization:RMSNorm swiglu:true ffn_hidden_size:24 add_bias_linear:false qkv_has_bias:true "
    "hidden_dropout_rate:0 "
    "attention_dropout_rate:0 untie_embeddings_and_output_weights:true vision.num_layers:2 vision.hidden_size:16 "
    "vision.num_attention_heads:2 vision.ffn_hidden_size:24 vision.in_channels:2 vision.patch_size:2 "
    "vision.temporal_patch_size:1 vision.image_token_id:27 vision.video_token_id:28 vision.vision_start_token_id:26 "
    "vision.init_method_std:0.3 init_method_std:0.3";
constexpr std::int64_t small_patch = 8;

/// Patches of an image in time, height and width.
using SmallGrid = std::array<std::int32_t, 3>;

inline BatchFields image_fields() {
  auto fields = token_fields();
  for (auto& field : fields)
    if (field.name == "positions") field.width = 3;
  fields.push_back({pixel_field, DType::float32, FieldExtent::own, small_patch, 4096});
  fields.push_back({grid_field, DType::int32, FieldExtent::own, 3, 64});
  return fields;
}

/// Writes sample `out`, whose extents fit `images`, with random tokens and pixels. Each image is followed by at least
/// one token of text; positions count tokens of text, and the features of an image have those of its rows and columns.
inline void write_image_sample(const std::vector<SmallGrid>& images, unsigned seed, const SampleView& out) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto length = static_cast<std::size_t>(out.seq_length);
  for (auto& value : out.field<float>(pixel_field)) value = normal(random);
  auto grids = out.field<std::int32_t>(grid_field);
  std::size_t at = 0;
  std::int32_t position = 0;
  const auto put = [&](std::int32_t token, const SmallGrid& place) {
    out.tokens[at] = token;
    for (std::size_t axis = 0; axis < 3; ++axis) out.positions[axis * length + at] = place[axis];
    ++at;
  };
  const auto text = [&] {
    put(static_cast<std::int32_t>(random() % 26), {position, position, position});
    ++position;
  };
  text();
  for (const auto& grid : images) {
    std::ranges::copy(grid, grids.begin());
    grids = grids.subspan(3);
    const auto h = grid[1] / 2, w = grid[2] / 2;
    for (std::int32_t t = 0; t < grid[0]; ++t)
      for (std::int32_t r = 0; r < h; ++r)
        for (std::int32_t c = 0; c < w; ++c) put(27, {position + t, position + r, position + c});
    position += std::max({grid[0], h, w});
    text();
  }
  while (at < length) text();
  for (std::size_t i = 0; i < length; ++i) {
    out.labels[i] = static_cast<std::int32_t>(random() % 26);
    out.loss_mask[i] = random() % 4 == 0 ? 0.0F : 1.0F;
  }
  std::ranges::fill(out.document_start, 0);
}

/// Rows of the fields with extents of their own.
inline void image_extents(const std::vector<SmallGrid>& images, std::span<std::int64_t> rows) {
  rows[rows.size() - 2] = 0;
  for (const auto& grid : images) rows[rows.size() - 2] += std::int64_t{grid[0]} * grid[1] * grid[2];
  rows[rows.size() - 1] = std::ssize(images);
}

/// A batch of `images[s]` in each sample.
inline Batch image_batch(const std::vector<std::vector<SmallGrid>>& images, std::int64_t length, unsigned seed) {
  const auto samples = static_cast<std::int64_t>(images.size());
  Batch batch(image_fields(), samples, length);
  for (std::int64_t s = 0; s < samples; ++s) image_extents(images[static_cast<std::size_t>(s)], batch.own_rows(s));
  batch.resize(length);
  for (std::int64_t s = 0; s < samples; ++s) {
    const auto sample = batch.sample(s);
    write_image_sample(images[static_cast<std::size_t>(s)], seed + static_cast<unsigned>(s), sample);
    sample.sample_ids[0] = 5 + s;
  }
  return batch;
}

}  // namespace tessera::model
