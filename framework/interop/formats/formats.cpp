#include "framework/interop/formats/formats.h"

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron.h"

namespace tessera {

void add_all_formats(CheckpointFormats& formats) {
  formats.add(std::make_shared<HuggingFaceFormat>());
  formats.add(std::make_shared<MegatronFormat>());
}

CheckpointFormats all_formats() {
  CheckpointFormats formats;
  add_all_formats(formats);
  return formats;
}

}  // namespace tessera
