// The header of a .npy file: refused with a ConfigError, or its values begin inside the file.
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/gpt/npy_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const auto header = gpt::parse_npy_header({reinterpret_cast<const std::byte*>(data), size});
    if (header.values_at > size) std::abort();
    for (const auto extent : header.shape)
      if (extent < 0) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
