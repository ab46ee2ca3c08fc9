// The index of a distributed checkpoint: refused with a ConfigError, or every chunk lies inside its tensor.
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/interop/torch/dcp_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const auto index = torch::read_dcp_index(std::as_bytes(std::span(data, size)), "fuzz");
    for (const auto& tensor : index.tensors)
      for (const auto& chunk : index.chunks_of(tensor)) {
        const auto offsets = index.offsets(tensor, chunk), extents = index.extents(tensor, chunk);
        for (std::size_t dim = 0; dim < offsets.size(); ++dim)
          if (offsets[dim] < 0 || extents[dim] < 1 || offsets[dim] > tensor.size[dim] - extents[dim]) std::abort();
        if (chunk.place.file >= index.files.size()) std::abort();
      }
  } catch (const ConfigError&) {
  }
  return 0;
}
