// A preprocessor_config.json: refused with a ConfigError, or options of which every value is within its range.
#include <string_view>

#include "framework/base/error.h"
#include "framework/images/processor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const images::Processor processor(images::read_processor_options({reinterpret_cast<const char*>(data), size}));
    images::grid_of({640, 480}, 1, processor.options());
  } catch (const ConfigError&) {
  }
  return 0;
}
