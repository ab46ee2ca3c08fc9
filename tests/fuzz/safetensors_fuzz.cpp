// The header of a safetensors file: refused with a ConfigError, or every tensor lies inside the file and its size is
// that of its shape.
#include <cstdlib>

#include "framework/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (const auto& [name, entry] : checkpoint::read_safetensors_header(bytes, size, "fuzz").entries) {
      const auto needed = static_cast<std::uint64_t>(entry.shape.elements()) * size_of(entry.dtype);
      if (entry.begin > entry.end || entry.end > size || entry.end - entry.begin != needed) std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
