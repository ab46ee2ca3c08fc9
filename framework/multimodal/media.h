#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/data/visual_positions.h"
#include "framework/images/limits.h"
#include "framework/images/processor.h"
#include "framework/multimodal/record.h"

namespace tessera::multimodal {

/// What becomes of the pictures of records.
struct MediaOptions {
  std::string media_dir = ".";  ///< where paths are looked for first
  images::PixelLimits image_limits, frame_limits;
  bool turn_by_exif = false;        ///< pictures are turned as their EXIF orientation asks, before the limits
  std::int64_t video_maxlen = 128;  ///< most frames of a video; of more, so many at equal distances
  images::ProcessorOptions processor;
};

/// Finds and reads images and videos. Immutable and thread-safe.
class MediaReader {
 public:
  /// Throws ConfigError if the options of the processor are invalid.
  explicit MediaReader(const MediaOptions& options);

  const images::ProcessorOptions& processor() const { return processor_.options(); }
  /// MEDIA_DIR/PATH if that is a file, else the path as it is; then `as_written`, unless null, becomes true. `address`:
  /// a path, also behind "file://". Throws data::BadSampleError if it cannot be one (images::path_of).
  std::string found(const std::string& address, bool* as_written = nullptr) const;
  /// The grid of an image or video, by the headers of its files. Throws data::BadSampleError, naming the file, if one
  /// cannot be read, or two frames of a video differ in size.
  data::PatchGrid grid_of(const Medium& medium) const;
  /// Decodes it and writes its patches [grid.patches(), patch_width()]. Throws data::BadSampleError as grid_of, and if
  /// a file is damaged or was changed since.
  void write_patches(const Medium& medium, const data::PatchGrid& grid, std::span<float> patches) const;
  /// Its frames as the model sees them, each as the bytes of a PNG file. Throws data::BadSampleError as write_patches.
  std::vector<std::string> png_files(const Medium& medium) const;

 private:
  const images::PixelLimits& limits_of(const Medium& medium) const {
    return medium.is_video ? options_.frame_limits : options_.image_limits;
  }
  images::Size limited_size_of(const std::string& path, const images::PixelLimits& limits) const;
  images::Picture limited_picture(const std::string& path, const images::PixelLimits& limits) const;
  std::vector<std::string> frames_of(const Medium& medium) const;
  std::vector<images::Picture> pictures_of(const Medium& medium) const;

  MediaOptions options_;
  images::Processor processor_;
};

/// `most` of the indices [0, count) at equal distances, as numpy.linspace(0, count - 1, most) rounded down; all if
/// there are no more.
std::vector<std::int64_t> chosen_frames(std::int64_t count, std::int64_t most);

}  // namespace tessera::multimodal
