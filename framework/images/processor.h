#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/images/picture.h"
#include "framework/images/resize.h"

namespace tessera::images {

/// Options of the image processor of Qwen2-VL (Transformers' preprocessor_config.json).
struct ProcessorOptions {
  std::int64_t min_pixels = 56 * 56;         ///< width x height of the resized picture
  std::int64_t max_pixels = 28 * 28 * 1280;  ///< the defaults of Transformers' class
  int patch_size = 14, temporal_patch_size = 2, merge_size = 2;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> standard_deviation = {0.26862954, 0.26130258, 0.27577711};
  double rescale_factor = 1.0 / 255;
  bool resize = true, rescale = true, normalize = true;
  Backend backend = Backend::torchvision;

  /// Sides of a resized picture are multiples of this.
  std::int64_t factor() const { return std::int64_t{patch_size} * merge_size; }
  /// Values of one patch: 3 temporal_patch_size patch_size^2.
  std::int64_t patch_width() const { return std::int64_t{3} * temporal_patch_size * patch_size * patch_size; }
};

/// Reads the text of a preprocessor_config.json or video_preprocessor_config.json into options that begin as the
/// defaults. All spellings of the limits: min_pixels and max_pixels (Transformers 4), also in size, and size:
/// {shortest_edge, longest_edge} (5). Where a file has several that differ, those outside size win, then min_pixels and
/// max_pixels in it. The backend stays the default unless image_processor_type names one of Transformers' classes for
/// it. Throws ConfigError, which does not name the file and has all mistakes, if the text is no JSON object, a value
/// has a wrong type or range, size has another key, or a setting asks for what is not supported (another resample than
/// BICUBIC, a processor of another model).
ProcessorOptions read_processor_options(std::string_view json);

/// The file in `folder` that read_processor_options takes: preprocessor_config.json, or if there is none the
/// processor_config.json of Transformers 5, whose names begin with `prefix`. It need not exist.
std::filesystem::path processor_file(const std::filesystem::path& folder, const std::string& prefix = "");

/// Throws ConfigError, with all mistakes, if a value is out of its range.
void check(const ProcessorOptions& options);

/// Size of a grid of patches: frames / temporal_patch_size, height and width in patches before they are merged.
struct Grid {
  std::int32_t t = 0, h = 0, w = 0;
  std::int64_t patches() const { return std::int64_t{t} * h * w; }
  /// Tokens of the language model: patches / merge_size^2.
  std::int64_t tokens(int merge_size) const { return patches() / merge_size / merge_size; }
  bool operator==(const Grid&) const = default;
};

/// How smart_resize rounds sides below half a factor.
enum class SmartRounding : std::uint8_t {
  transformers,  ///< Transformers 4.57 and 5: to 0 before the limits are looked at, to `factor` at least after
  qwen_vl_utils  ///< to `factor` at least before
};

/// The size to which a picture is resized: sides rounded half to even to multiples of `factor`; then, if they exceed
/// the limits of pixels, scaled to hold them. Throws ConfigError if one side of `size` is more than 200 times the
/// other, if it is empty, or if the limits leave no size.
Size smart_resize(Size size, std::int64_t factor, std::int64_t min_pixels, std::int64_t max_pixels,
                  SmartRounding rounding = SmartRounding::transformers);

/// The grid of `frames` frames of `size` (1: a picture), without their pixels. Throws ConfigError as smart_resize.
Grid grid_of(Size size, std::int64_t frames, const ProcessorOptions& options);

/// The rows that the vision tower reads.
struct Patches {
  Grid grid;
  /// [grid.patches(), patch_width()], one row per patch; rows run over t, merged row, merged column, row and column
  /// within the merged patch, columns over channel, frame, y, x.
  std::vector<float> values;
};

/// The image processor: pictures of mode RGB to normalised patches. Immutable; its members are thread-safe.
class Processor {
 public:
  /// Throws ConfigError as check().
  explicit Processor(const ProcessorOptions& options);

  const ProcessorOptions& options() const { return options_; }

  /// Patches of a picture (one frame, repeated temporal_patch_size times) or of a video (its frames in order; the last
  /// is repeated until their number is a multiple of temporal_patch_size). Values equal those of the backend to the
  /// bit. Throws ConfigError if there are no frames or their sizes differ, and as smart_resize; BugError if a frame is
  /// not of mode RGB.
  Patches process(std::span<const Picture> frames) const;
  /// The same into memory of the caller, [grid.patches(), patch_width()] of grid_of(size, frames). BugError if `values`
  /// has another size.
  Grid process(std::span<const Picture> frames, std::span<float> values) const;
  /// The bytes before they are scaled, in the same order.
  std::vector<std::uint8_t> levels(std::span<const Picture> frames) const;

  /// A picture as the model sees it: resized to whole patches, in RGB.
  Picture resized(const Picture& frame) const;

 private:
  ProcessorOptions options_;
  std::array<std::array<float, 256>, 3> scaled_;  // the value of each level in each channel
};

}  // namespace tessera::images
