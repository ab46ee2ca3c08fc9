#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/model/generation.h"
#include "framework/model/vision_options.h"
#include "framework/tensor/batch.h"

namespace tessera::cli {

/// A conversation with images and the files of these, in reading order.
struct ImageConversation {
  Json messages;
  std::vector<std::string> images;
};

/// Puts `images` into a conversation: in front of the text of its last user's message, or, if messages have parts
/// {"type": "image"} without a file, into these in order. Collects the files of all image parts: "image", "url" or
/// "path" of the part, also as {"image_url": {"url": ...}} and with "file://"; relative paths are looked for beside
/// `folder`. Throws ConfigError for parts without a file, files without a part, and addresses that are no files.
ImageConversation with_images(Json messages, const std::vector<std::string>& images,
                              const std::filesystem::path& folder);

/// A prompt with images as a model reads it. Owns its batch.
class ImagePrompt {
 public:
  /// `tokens`: of the rendered conversation, with one placeholder for each image, which becomes as many as the image
  /// has features. `folder` has preprocessor_config.json. Pictures are converted to RGB as Transformers' processor does
  /// it: alpha is dropped, EXIF turns nothing. Throws ConfigError if a picture cannot be read, or if there are not as
  /// many placeholders as images.
  ImagePrompt(const std::vector<std::int32_t>& tokens, const std::vector<std::string>& images,
              const model::VisionOptions& vision, const std::filesystem::path& folder);

  /// Valid as long as this object.
  model::Prompt prompt() const { return {view_, shift_}; }
  const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  std::vector<std::int32_t> tokens_;
  std::unique_ptr<Batch> batch_;
  TokenBatch view_;
  std::int64_t shift_ = 0;
};

}  // namespace tessera::cli
