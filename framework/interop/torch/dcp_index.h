#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace tessera::torch {

/// Where an item of a distributed checkpoint lies. Every item is a complete archive of torch.save.
struct DcpPlace {
  std::uint32_t file = 0;  ///< index in DcpIndex::files
  std::uint64_t begin = 0, bytes = 0;
};

/// A chunk: the box of a tensor that one item has.
struct DcpChunk {
  DcpPlace place;
  std::size_t numbers = 0;  ///< see DcpIndex::offsets
};

/// A tensor that is stored in chunks.
struct DcpTensor {
  std::string key;
  DType type = DType::float32;
  Shape size;
  /// Megatron-LM's nd_reformulated_orig_global_shape: the tensor is stored flattened, and had this shape before. Rank
  /// 0: it is stored as it is.
  Shape flattened_from = {};
  std::size_t first_chunk = 0, chunks = 0;  ///< in DcpIndex::chunks
};

/// The file .metadata of a checkpoint that torch.distributed.checkpoint has written, or Megatron-LM with
/// --ckpt-format torch_dist.
struct DcpIndex {
  std::vector<std::string> files;  ///< names in the folder
  std::vector<DcpTensor> tensors;  ///< in the order of the file
  std::vector<DcpChunk> chunks;
  std::map<std::string, DcpPlace> objects;  ///< what is not a tensor, by key
  /// From plain torch.distributed.checkpoint: the keys' paths in the state dict that was saved. Empty otherwise.
  std::map<std::string, std::vector<std::string>> paths;

  /// Offsets of a chunk in its tensor, and its extents.
  std::span<const std::int64_t> offsets(const DcpTensor& tensor, const DcpChunk& chunk) const {
    return std::span(numbers).subspan(chunk.numbers, tensor.size.rank());
  }
  std::span<const std::int64_t> extents(const DcpTensor& tensor, const DcpChunk& chunk) const {
    return std::span(numbers).subspan(chunk.numbers + tensor.size.rank(), tensor.size.rank());
  }
  std::span<const DcpChunk> chunks_of(const DcpTensor& tensor) const {
    return std::span(chunks).subspan(tensor.first_chunk, tensor.chunks);
  }

  std::vector<std::int64_t> numbers;  ///< of all chunks: offsets, then extents
};

/// Parses the content of .metadata as data; nothing is executed. Needs at most 8 times the memory of `bytes`, without
/// what is in 'all_local_plans', which is left out. Throws ConfigError, beginning with `speaker` and naming the key,
/// for a global that no such file needs, a chunk that has no item or is outside of its tensor, chunks that do not
/// contain each element of their tensor once, names of files with '/' or "..", items that have been transformed
/// (compressed), and element types that are not read.
DcpIndex read_dcp_index(std::span<const std::byte> bytes, const std::string& speaker);

}  // namespace tessera::torch
