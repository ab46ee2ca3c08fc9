#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

// The files of PyTorch's distributed checkpoints (torch.distributed.checkpoint) as Megatron-LM's --ckpt-format
// torch_dist has them: data files __<rank>_0.distcp, whose items are archives of torch.save one behind the other, and
// .metadata, the index of all items. Which tensors there are, and their keys, is the caller's affair.

namespace tessera::megatron {

/// A chunk of a tensor, or an object.
struct DcpItem {
  std::string key;
  bool is_object = false;  ///< without elements; its value is the list [None], what Megatron-LM stores for no value
  DType type = DType::float32;
  Shape size = {};                         ///< of the whole tensor
  std::vector<std::int64_t> offsets = {};  ///< of the chunk in it
  Shape extents = {};                      ///< of the chunk
  /// If the tensor is stored flattened, the shape that it had before (nd_reformulated_orig_global_shape); else empty.
  std::vector<std::int64_t> flattened_from = {};
  torch::ArchiveWriter::Stream elements = {};  ///< gives the elements of the chunk, when they are written
};

/// Writes the items of one rank to <folder>/__<rank>_0.distcp, and what finish_dcp() needs of them to
/// <folder>/part_<rank>.json, with `note`. No data file without items. Disk space is reserved first. The files are
/// synced. Throws IoError.
void write_dcp_items(const std::filesystem::path& folder, std::int64_t rank, const std::vector<DcpItem>& items,
                     const Json& note);

/// The parts that the ranks wrote, in the order of the ranks.
class DcpParts {
 public:
  /// Reads the files part_*.json in `folder`. Throws IoError; DamageError if one is damaged.
  explicit DcpParts(const std::filesystem::path& folder);
  /// The notes of the ranks.
  std::vector<Json> notes() const;
  /// Writes .metadata (to another name first, synced) and deletes the files part_*.json. Throws IoError; BugError if
  /// the chunks of a tensor do not contain each of its elements once.
  void write_metadata() const;

 private:
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> files_;
  std::vector<Json> parts_;
};

}  // namespace tessera::megatron
