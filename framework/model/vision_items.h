#pragma once

#include "framework/autograd/ops/rows.h"
#include "framework/model/vision_options.h"
#include "framework/nn/pass.h"
#include "framework/tensor/batch.h"

namespace tessera::model {

/// Names of the fields with images and videos of a batch:
///
///   pixel_values   float32, rows of their own: one for each patch, of VisionOptions::patch_width() elements
///   grid_thw       int32, rows of their own: one for each image or video, its patches in time, height and width
///
/// Both are in reading order of the placeholder tokens. The patches of an item run over time steps, then over blocks of
/// spatial_merge_size^2 patches row by row, then over the rows and columns of the block.
inline constexpr const char *pixel_field = "pixel_values", *grid_field = "grid_thw";

/// The images and videos of a micro-batch as the vision tower computes them: all patches in one sequence, without
/// padding. A micro-batch without any has one item of zeros, so that each rank and stage always computes the same
/// operations; no token reads its features.
///
/// With windows of attention the features of a time step are in the order of their windows, so that the patches of a
/// window are neighbours. Everything is in memory of the tape or of the batch.
struct VisionItems {
  std::int64_t patches = 0;
  /// [patches / merged()]: the feature in reading order that each feature of the tower's order is.
  std::span<const std::int32_t> features;
  std::span<const std::int32_t> rows, columns;  ///< [patches]: position of each patch within its item
  kernels::VisibleKeys whole, windowed;         ///< of each patch: its item's time step, and its window in it
  std::span<const float> pixels;                ///< [patches, patch_width()] in reading order
  bool placeholder = false;                     ///< the micro-batch has no image or video

  /// Throws ShapeError if the fields contradict each other or the options.
  static VisionItems of(autograd::Tape& tape, const TokenBatch& batch, const VisionOptions& o);
};

/// VisionItems::patches of a batch. Throws as VisionItems::of.
std::int64_t patches_of(const TokenBatch& batch, const VisionOptions& o);

/// Numbers of patches of images with these `grids` (Model::image_flops), and of ordered pairs of patches of which one
/// sees the other: in layers that see the whole time step, and in those that see a window.
struct PatchPairs {
  double patches = 0, whole = 0, windowed = 0;
};
PatchPairs pairs_of(std::span<const std::int32_t> grids, const VisionOptions& o);

/// Where the features of `items` take the place of token embeddings, in reading order over all samples of `batch`.
///
///   first, count   the tokens [first, first + count) of each sample are those that this rank has; places count these
///
/// Throws ConfigError if there are not as many placeholder tokens as features.
std::span<const autograd::RowPlace> feature_places(autograd::Tape& tape, const TokenBatch& batch,
                                                   const VisionItems& items, const VisionOptions& o, std::int64_t first,
                                                   std::int64_t count);

}  // namespace tessera::model
