#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/images/processor.h"
#include "framework/model/generation.h"
#include "framework/model/vision_options.h"
#include "framework/tensor/batch.h"

namespace tessera::cli {

/// An image of a conversation, or a video as a list of its frames.
struct Visual {
  bool is_video = false;
  std::vector<std::string> files;  ///< one for an image
  std::optional<double> fps = {};  ///< frames of the video in a second, if the conversation says it
};

/// A conversation and its images and videos, in reading order.
struct VisualConversation {
  std::string place = {};  ///< begins errors about it, "all.json: conversation 2: "; empty: nothing does
  Json messages = {};
  std::vector<Visual> visuals = {};
};

/// Puts `images` into a conversation: in front of the text of its last user's message, or, if messages have parts
/// {"type": "image"} without a file, into these in order. Collects the files of all parts: of {"type": "image"} its
/// "image", "url" or "path", also as {"image_url": {"url": ...}} and with "file://"; of {"type": "video"} the list
/// "video" and its "fps". Relative paths are looked for beside `folder`, if they are no files themselves. Throws
/// ConfigError for parts without a file, files without a part, addresses that are no files, and videos that are no
/// lists of frames.
VisualConversation with_images(Json messages, const std::vector<std::string>& images,
                               const std::filesystem::path& folder);

/// How the picture of a file becomes RGB, before the image processor.
enum class PictureLoading : std::uint8_t {
  rgb,           ///< Pillow's convert("RGB"): alpha is dropped, EXIF turns nothing
  load_image,    ///< as Transformers' load_image: turned by EXIF, then as rgb
  qwen_vl_utils  ///< as qwen_vl_utils and with it MindSpeed-MM: alpha laid on white, resized to whole features
};

/// How pictures become what a model reads.
struct PictureSettings {
  images::ProcessorOptions processor;                        ///< its backend: of images
  images::Backend of_videos = images::Backend::torchvision;  ///< Transformers has no other one for videos
  PictureLoading loading = PictureLoading::rgb;
};

/// Throws ConfigError unless the tokens have a placeholder for each of `visuals`, of its kind, and no other.
void check_placeholders(const std::vector<std::int32_t>& tokens, const std::vector<Visual>& visuals,
                        const model::VisionOptions& vision);

/// A prompt with images and videos as a model reads it. Owns its batch.
class VisualPrompt {
 public:
  /// `tokens`: of the rendered conversation, with one placeholder for each image or video, which becomes as many as it
  /// has features. All frames of videos are read. Throws ConfigError if a picture cannot be read, the placeholders do
  /// not fit, or a video has no "fps" although the tower has tokens_per_second.
  VisualPrompt(const std::vector<std::int32_t>& tokens, const std::vector<Visual>& visuals,
               const model::VisionOptions& vision, const PictureSettings& settings);

  /// Valid as long as this object.
  model::Prompt prompt() const { return {view_, shift_}; }
  const Batch& batch() const { return *batch_; }
  /// KeyValueCache::position_shift() behind the prompt.
  std::int64_t shift() const { return shift_; }

 private:
  std::unique_ptr<Batch> batch_;
  TokenBatch view_;
  std::int64_t shift_ = 0;
};

}  // namespace tessera::cli
