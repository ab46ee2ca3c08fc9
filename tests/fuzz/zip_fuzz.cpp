// The directory of a zip archive: refused with a ConfigError, or every entry lies inside the archive.
#include <cstdlib>

#include "framework/interop/torch/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    for (const auto& [name, entry] : torch::read_zip_directory(std::as_bytes(std::span(data, size)), "fuzz"))
      if (entry.begin > size || entry.bytes > size - entry.begin) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
