// config.json of any family: refused with a ConfigError, or a table of weights can be made for it.
#include "framework/interop/hugging_face/hugging_face.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const options::Mappings mappings;
  try {
    const std::string words(reinterpret_cast<const char*>(data), size);
    const auto config = hugging_face::parse_hugging_face_config(words, "fuzz", mappings);
    const auto* layers = config.model_config.find("num_layers");
    if (layers != nullptr && layers->scalar.size() < 3)
      hugging_face::weight_table(config.weights_table, config.model_config, mappings, "fuzz");
  } catch (const ConfigError&) {
  }
  return 0;
}
