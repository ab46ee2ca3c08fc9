#include "framework/cli/trained_pictures.h"

#include "framework/base/files.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/log/log.h"
#include "framework/multimodal/mllm_options.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const log::Logger pictures_logger("images");

/// The file of the image processor in `folder`; it need not exist.
fs::path processor_file_of(const fs::path& folder) {
  const auto carried = images::processor_file(folder / "blobs", hugging_face::carried_prefix);
  return fs::exists(carried) ? carried : images::processor_file(folder);
}

images::ProcessorOptions processor_of_training(const recipe::TrainedModel& trained, multimodal::MllmOptions options,
                                               const model::VisionOptions& tower) {
  options.patch_size = tower.patch_size;
  options.temporal_patch_size = tower.temporal_patch_size;
  options.spatial_merge_size = tower.spatial_merge_size;
  const auto& named = options.model_name_or_path;
  if (const auto here = processor_file_of(trained.base);
      named && !fs::exists(images::processor_file(*named)) && fs::exists(here)) {
    pictures_logger.warning(text("the model was trained with the image processor of ", *named,
                                 " (dataset_config.model_name_or_path), which is not there; ", here.string(),
                                 " is used instead"));
    auto made = processor_of(trained.base, tower);
    made.backend = multimodal::sizes_of_patches(options).backend;
    return made;
  }
  return multimodal::processor_of(options);
}

}  // namespace

const model::VisionOptions& tower_that_sees(const recipe::TrainedModel& trained) {
  const auto* tower = trained.recipe.architecture->vision();
  if (tower == nullptr)
    throw ConfigError(text(trained.folder.string(), ": the model has no vision tower, so it reads no images"));
  const auto* positions = trained.recipe.resolved.at("model_config.position_embedding_type");
  if (positions != nullptr && positions->scalar != "mrope")
    throw ConfigError(text(trained.folder.string(), ": model_config.position_embedding_type is ", positions->scalar,
                           ", but images and videos have positions of time, rows and columns; a model that reads them "
                           "needs position_embedding_type mrope: take one that was trained with it"));
  constexpr std::int64_t rgb = 3;
  if (tower->in_channels != rgb)
    throw ConfigError(text(trained.folder.string(), ": vision_config.in_channels is ", tower->in_channels,
                           ", but pictures are read as images of three channels; take a model with in_channels 3"));
  return *tower;
}

images::ProcessorOptions processor_of(const fs::path& folder, const model::VisionOptions& vision) {
  images::ProcessorOptions options;
  options.patch_size = static_cast<int>(vision.patch_size);
  options.temporal_patch_size = static_cast<int>(vision.temporal_patch_size);
  options.merge_size = static_cast<int>(vision.spatial_merge_size);
  const auto file = processor_file_of(folder);
  if (!fs::exists(file)) return options;
  try {
    options = images::read_processor_options(read_file(file));
  } catch (const ConfigError& error) {
    throw ConfigError(text(file.string(), ": ", error.what()));
  }
  if (options.patch_size != vision.patch_size || options.temporal_patch_size != vision.temporal_patch_size ||
      options.merge_size != vision.spatial_merge_size)
    throw ConfigError(text(file.string(), ": patches of ", options.temporal_patch_size, " x ", options.patch_size,
                           " x ", options.patch_size, ", merged by ", options.merge_size, "; the model takes ",
                           vision.temporal_patch_size, " x ", vision.patch_size, " x ", vision.patch_size,
                           ", merged by ", vision.spatial_merge_size));
  return options;
}

PictureSettings trained_pictures(const recipe::TrainedModel& trained, const model::VisionOptions& tower) {
  const auto* options = trained.recipe.dataset.options<multimodal::MllmOptions>();
  if (options == nullptr) return {.processor = processor_of(trained.base, tower)};
  PictureSettings made{.processor = processor_of_training(trained, *options, tower)};
  made.of_videos = made.processor.backend;
  if (options->turn_by_exif) made.loading = PictureLoading::load_image;
  return made;
}

}  // namespace tessera::cli
