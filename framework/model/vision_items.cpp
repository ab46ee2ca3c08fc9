#include "framework/model/vision_items.h"

#include <algorithm>

namespace tessera::model {
namespace {

/// Patches of an image or video in time, height and width.
struct Grid {
  std::int64_t t = 1, h = 1, w = 1;
  std::int64_t patches() const { return t * h * w; }
};

/// The items of a batch; none: a single one of the smallest size.
std::vector<Grid> grids_of(const TokenBatch& batch, const VisionOptions& o) {
  std::vector<Grid> grids;
  if (batch.has_field(grid_field)) {
    const auto numbers = batch.field<std::int32_t>(grid_field);
    for (std::size_t i = 0; i + 2 < numbers.size(); i += 3)
      grids.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  }
  if (grids.empty()) grids.push_back({1, o.spatial_merge_size, o.spatial_merge_size});
  for (const auto& grid : grids)
    if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h % o.spatial_merge_size != 0 ||
        grid.w % o.spatial_merge_size != 0)
      throw ShapeError(text("vision tower: an image of ", grid.t, " x ", grid.h, " x ", grid.w,
                            " patches; expected at least one time step, and rows and columns in multiples of "
                            "spatial_merge_size, ",
                            o.spatial_merge_size));
  return grids;
}

/// Writes the arrays of VisionItems, one feature after the other.
class Writer {
 public:
  Writer(autograd::Tape& tape, const VisionOptions& o, std::int64_t patches)
      : o_(o),
        features_(tape.keep_array<std::int32_t>(static_cast<std::size_t>(patches / o.merged()))),
        rows_(array(tape, patches)),
        columns_(array(tape, patches)),
        first_(array(tape, patches)),
        last_(array(tape, patches)),
        window_first_(array(tape, patches)),
        window_last_(array(tape, patches)) {}

  void add(const Grid& grid) {
    const auto h = grid.h / o_.spatial_merge_size, w = grid.w / o_.spatial_merge_size;
    const auto side = o_.window_features() > 0 ? o_.window_features() : std::max(h, w);
    for (std::int64_t t = 0; t < grid.t; ++t) {
      const auto begin = patch_;
      for (std::int64_t row = 0; row < h; row += side)
        for (std::int64_t column = 0; column < w; column += side) {
          const auto window = patch_;
          for (auto r = row; r < std::min(row + side, h); ++r)
            for (auto c = column; c < std::min(column + side, w); ++c) add_feature(before_ + (t * h + r) * w + c, r, c);
          fill(window_first_, window_last_, window);
        }
      fill(first_, last_, begin);
    }
    before_ += grid.t * h * w;
  }

  void write_to(VisionItems& out) const {
    out.patches = patch_;
    out.features = features_;
    out.rows = rows_;
    out.columns = columns_;
    out.whole = {first_, last_};
    out.windowed = {window_first_, window_last_};
  }

 private:
  using Array = std::span<std::int32_t>;

  static Array array(autograd::Tape& tape, std::int64_t count) {
    return tape.keep_array<std::int32_t>(static_cast<std::size_t>(count));
  }

  /// The patches of the feature at (row, column), which is number `number` in reading order.
  void add_feature(std::int64_t number, std::int64_t row, std::int64_t column) {
    const auto side = o_.spatial_merge_size;
    features_[static_cast<std::size_t>(patch_ / o_.merged())] = static_cast<std::int32_t>(number);
    for (std::int64_t r = 0; r < side; ++r)
      for (std::int64_t c = 0; c < side; ++c, ++patch_) {
        rows_[static_cast<std::size_t>(patch_)] = static_cast<std::int32_t>(row * side + r);
        columns_[static_cast<std::size_t>(patch_)] = static_cast<std::int32_t>(column * side + c);
      }
  }

  /// The patches since `begin` see each other.
  void fill(Array first, Array last, std::int64_t begin) const {
    for (auto i = begin; i < patch_; ++i) {
      first[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(begin);
      last[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(patch_ - 1);
    }
  }

  const VisionOptions& o_;
  Array features_, rows_, columns_, first_, last_, window_first_, window_last_;
  std::int64_t patch_ = 0, before_ = 0;  ///< patches so far; features of earlier items
};

}  // namespace

PatchPairs pairs_of(std::span<const std::int32_t> grids, const VisionOptions& o) {
  const auto square = [](std::int64_t patches) { return static_cast<double>(patches) * static_cast<double>(patches); };
  // Of rows or columns that are cut into windows.
  const auto squares = [&](std::int64_t rows) {
    const auto side = o.window_features() > 0 ? o.window_features() * o.spatial_merge_size : rows;
    return static_cast<double>(rows / side) * square(side) + square(rows % side);
  };
  PatchPairs out;
  for (; grids.size() >= 3; grids = grids.subspan(3)) {
    const auto steps = static_cast<double>(grids[0]);
    out.patches += steps * static_cast<double>(grids[1]) * static_cast<double>(grids[2]);
    out.whole += steps * square(grids[1]) * square(grids[2]);
    out.windowed += steps * squares(grids[1]) * squares(grids[2]);
  }
  return out;
}

std::int64_t patches_of(const TokenBatch& batch, const VisionOptions& o) {
  std::int64_t patches = 0;
  for (const auto& grid : grids_of(batch, o)) patches += grid.patches();
  return patches;
}

VisionItems VisionItems::of(autograd::Tape& tape, const TokenBatch& batch, const VisionOptions& o) {
  const auto grids = grids_of(batch, o);
  const auto patches = patches_of(batch, o);
  VisionItems out;
  out.placeholder = !batch.has_field(grid_field) || batch.field<std::int32_t>(grid_field).empty();
  Writer writer(tape, o, patches);
  for (const auto& grid : grids) writer.add(grid);
  writer.write_to(out);
  const auto elements = static_cast<std::size_t>(patches * o.patch_width());
  if (out.placeholder) {
    const auto zeros = tape.keep_array<float>(elements);
    std::ranges::fill(zeros, 0.0F);
    out.pixels = zeros;
    return out;
  }
  out.pixels = batch.field<float>(pixel_field);
  if (out.pixels.size() != elements)
    throw ShapeError(text("vision tower: ", pixel_field, " has ", out.pixels.size(), " elements, but the images of ",
                          grid_field, " have ", patches, " patches of ", o.patch_width()));
  return out;
}

std::span<const autograd::RowPlace> feature_places(autograd::Tape& tape, const TokenBatch& batch,
                                                   const VisionItems& items, const VisionOptions& o, std::int64_t first,
                                                   std::int64_t count) {
  std::int64_t tokens = 0;
  for (const auto token : batch.tokens) tokens += o.is_placeholder(token) ? 1 : 0;
  const auto features = items.placeholder ? 0 : static_cast<std::int64_t>(items.features.size());
  if (tokens != features)
    throw ConfigError(text("vision tower: the micro-batch has ", tokens, " placeholder tokens (image_token_id ",
                           o.image_token_id, ", video_token_id ", o.video_token_id, "), but its images have ", features,
                           " features; texts without images must not contain these tokens: train on other data, or "
                           "correct the two options of vision_config"));
  // The tower's feature with each number in reading order.
  const auto of_number = tape.keep_array<std::int32_t>(items.features.size());
  for (std::size_t i = 0; i < items.features.size(); ++i)
    of_number[static_cast<std::size_t>(items.features[i])] = static_cast<std::int32_t>(i);
  const auto places = tape.keep_array<autograd::RowPlace>(static_cast<std::size_t>(features));
  std::size_t number = 0, used = 0;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    if (!o.is_placeholder(batch.tokens[i])) continue;
    const auto sample = static_cast<std::int64_t>(i) / batch.seq_length,
               token = static_cast<std::int64_t>(i) % batch.seq_length;
    const auto from = of_number[number++];
    if (token >= first && token < first + count) places[used++] = {sample * count + token - first, from};
  }
  return places.first(used);
}

}  // namespace tessera::model
