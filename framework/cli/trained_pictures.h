#pragma once

#include <filesystem>

#include "framework/cli/visual_prompt.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {

/// The vision tower of a model that is to read images. Throws ConfigError, beginning with the folder of the model, if
/// it has none, if its positions have one axis only (position_embedding_type is not mrope), or if its images do not
/// have three channels.
const model::VisionOptions& tower_that_sees(const recipe::TrainedModel& trained);

/// The image processor in `folder`, a checkpoint that carries the files of the model it began with (blobs/hf.*) or a
/// folder of Transformers; without a file, that of the tower's patches with the limits of Transformers. Throws
/// ConfigError, naming the file, if it is damaged or has other sizes of patches than the tower.
images::ProcessorOptions processor_of(const std::filesystem::path& folder, const model::VisionOptions& vision);

/// How the model reads pictures: as in its training, if its recipe has dataset_type mllm (but for the limits of pixels
/// before the image processor), else by the image processor of its folder. If the folder that the training took the
/// image processor from is gone, that of the checkpoint, with a warning. Throws ConfigError as processor_of.
PictureSettings trained_pictures(const recipe::TrainedModel& trained, const model::VisionOptions& tower);

}  // namespace tessera::cli
