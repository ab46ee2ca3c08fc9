#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/images/resize.h"
#include "framework/multimodal/packing.h"
#include "framework/multimodal/row_encoder.h"
#include "framework/options/schema.h"

namespace tessera::multimodal {

/// The image processor of Transformers whose numbers are computed.
enum class ImageBackend : std::uint8_t { torchvision, pil };
options::Words<ImageBackend> words(ImageBackend);

/// The options of dataset_type mllm: the keys of MindSpeed-MM's data.json, and sizes of patches.
struct MllmOptions {
  std::string dataset, media_dir = ".";
  std::optional<std::string> model_name_or_path;
  std::string prompt_template = "qwen2vl";
  bool train_on_prompt = false, mask_history = false, ignore_pad_token_for_loss = true;
  std::optional<std::int64_t> max_samples;
  std::int64_t preprocessing_num_workers = 1, preprocessing_batch_size = 1000;
  bool packing = false, neat_packing = false;
  std::int64_t image_max_pixels = 589824, image_min_pixels = 1024;
  std::int64_t video_max_pixels = 65536, video_min_pixels = 256, video_maxlen = 128;
  std::string messages = "messages";
  std::optional<std::string> images = "images", videos, system;
  std::string role_tag = "role", content_tag = "content";
  std::optional<std::string> user_tag = "user", assistant_tag = "assistant", observation_tag, function_tag, system_tag;
  std::optional<std::string> val_dataset;
  double val_rate = 0;
  std::optional<std::int64_t> val_max_samples;
  bool skip_unreadable_images = false, turn_by_exif = false;
  ImageBackend image_backend = ImageBackend::torchvision;
  std::int64_t patch_size = 14, temporal_patch_size = 2, spatial_merge_size = 2;
};
void describe(options::Schema<MllmOptions>& s);

/// The image processor: of preprocessor_config.json in `model_name_or_path`, else with the defaults of Qwen2-VL. Throws
/// ConfigError, naming the file, if it is damaged or has other sizes of patches than the options.
images::ProcessorOptions processor_of(const MllmOptions& options);
/// The sizes of the processor that decide the fields of samples, by the options alone.
images::ProcessorOptions sizes_of_patches(const MllmOptions& options);

/// How records are packed into rows of `seq_length` tokens, the last of which is padding, as there.
Packing packing_of(const MllmOptions& options, std::int64_t seq_length);

/// How rows are made. `processor` replaces the image processor of `options`. Throws as processor_of.
RowOptions row_options(const MllmOptions& options, std::int64_t seq_length,
                       const std::optional<images::ProcessorOptions>& processor = {});

/// Why pictures become of other sizes than `folder`, of a model that the run begins with, has them: its image processor
/// has other limits of pixels than that of `options`, within which pictures are. Empty if it has not, or has none.
std::string other_limits(const MllmOptions& options, const std::filesystem::path& folder);

/// The files of a list joined by commas, without blanks around them. Throws ConfigError for an empty name.
std::vector<std::string> files_of_list(const std::string& list);

}  // namespace tessera::multimodal
