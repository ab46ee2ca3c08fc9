#include "framework/interop/formats/formats.h"

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "framework/interop/mindspeed_mm/mm_checkpoint.h"

namespace tessera::formats {

void add_all_formats(checkpoint::CheckpointFormats& formats) {
  formats.add(std::make_shared<hugging_face::HuggingFaceFormat>());
  formats.add(std::make_shared<mindspeed_mm::MmFormat>());  // before Megatron-LM's, whose folders have the same names
  formats.add(std::make_shared<megatron::MegatronFormat>());
  formats.add(std::make_shared<megatron::MegatronDistFormat>());
}

}  // namespace tessera::formats
