#pragma once

#include <cstdint>
#include <span>

namespace tessera::data {

/// The ids of the tokens that stand for images and videos, their placeholders.
struct VisualTokens {
  std::int32_t image = 0, video = 0;
  std::int64_t merge = 2;  ///< spatial merge size: a placeholder stands for a square of merge x merge patches
  bool stands_for_patches(std::int32_t token) const { return token == image || token == video; }
};

/// Size of an image or video in patches: time steps, rows, columns.
struct PatchGrid {
  std::int32_t t = 1, h = 0, w = 0;
  double time_step = 1;  ///< distance of two time steps in positions; 1 in Qwen2-VL, rounded down in Qwen2.5-VL

  std::int64_t patches() const { return std::int64_t{t} * h * w; }
  /// Its placeholders.
  std::int64_t tokens(std::int64_t merge) const { return t * (h / merge) * (w / merge); }
  bool operator==(const PatchGrid&) const = default;
};

/// A row of tokens with images and videos.
struct VisualRow {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> mask = {};  ///< [tokens]: 0 for padding; empty: there is none
  std::span<const PatchGrid> grids = {};    ///< of its images and videos, in reading order
  /// No row of its batch has an image or video. Transformers then counts padding too for the largest position.
  bool in_batch_of_text = false;
};

/// Writes the positions [3, tokens] (time, row, column) of a row as Hugging Face Transformers 4 computes them for
/// Qwen2-VL. Text counts on, equally on the three axes. The placeholders of an image or video get the coordinates of
/// their squares, counted from the position at which it begins; what follows continues at the largest position so far +
/// 1. Padding gets 1 and is passed over.
///
/// Returns the delta: largest position + 1 - tokens of the row, padding included. While generating, the position of a
/// new token is the number of tokens before it + delta. Throws ShapeError if the placeholders do not agree with
/// the grids, as in a row that was cut inside an image.
std::int64_t write_visual_positions(const VisualRow& row, const VisualTokens& visual,
                                    std::span<std::int32_t> positions);

}  // namespace tessera::data
