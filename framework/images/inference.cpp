#include "framework/images/inference.h"

#include <algorithm>
#include <utility>

#include "framework/images/processor.h"
#include "framework/images/resize.h"

namespace tessera::images {

Picture fetched(Picture picture, const FetchLimits& limits) {
  const auto size =
      smart_resize(picture.size, limits.factor, limits.min_pixels, limits.max_pixels, SmartRounding::qwen_vl_utils);
  return resized_bicubic(on_white(std::move(picture)), size, Backend::pil);
}

}  // namespace tessera::images
