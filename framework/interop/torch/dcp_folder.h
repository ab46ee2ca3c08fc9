#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/interop/torch/dcp_index.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/tensor/tensor.h"

namespace tessera::torch {

/// Name of the index in the folder of a distributed checkpoint.
inline constexpr const char* dcp_index_file = ".metadata";

/// The folder of a checkpoint of torch.distributed.checkpoint, or of Megatron-LM's --ckpt-format torch_dist: the index
/// .metadata and files *.distcp, of which each is mapped when something of it is first read. Reading is thread-safe.
class DcpFolder {
 public:
  /// Reads the index. Throws as read_dcp_index; ConfigError also if a file is missing, or ends before an item that the
  /// index says is in it.
  explicit DcpFolder(std::filesystem::path folder);

  const DcpIndex& index() const { return index_; }
  /// The elements of a chunk in the mapped file, in the shape of the chunk, possibly unaligned; valid as long as this
  /// object. Throws ConfigError, naming file and key, if the item is no archive of torch.save, or its element type or
  /// shape is not what the index says; IoError if the file lost pages.
  /// The checksums of an item are verified when it is first read: DamageError.
  Tensor elements(const DcpTensor& tensor, const DcpChunk& chunk) const;
  /// Throws IoError if elements of a file that elements() gave may be wrong: it was truncated, or its disk failed.
  void require_intact(const DcpChunk& chunk) const { file(chunk.place.file)->require_intact(); }
  /// The archive of an object; null if there is none with this key. Throws as `elements`.
  std::unique_ptr<TorchFile> object(const std::string& key) const;
  /// What is saved: of Megatron-LM's objects the item of a list with one, else the root.
  static const PickleNode& content(const TorchFile& object);

  /// Reads everything and verifies the checksum of each entry of each item. Throws DamageError.
  void verify() const;
  std::uint64_t bytes() const { return bytes_; }  ///< size of the files that the index names, and of the index

 private:
  std::shared_ptr<const MappedFile> file(std::uint32_t number) const;
  TorchFile archive(const DcpPlace& place, const std::string& key) const;
  void verify_once(const TorchFile& item, const DcpPlace& place) const;
  template <class Visit>
  void each_place(const Visit& visit) const;

  std::filesystem::path folder_;
  DcpIndex index_;
  std::uint64_t bytes_ = 0;
  mutable std::set<std::pair<std::uint32_t, std::uint64_t>> verified_;  ///< items, by file and first byte
  mutable std::mutex opening_;
  mutable std::vector<std::shared_ptr<const MappedFile>> files_;  ///< null: not mapped yet
};

}  // namespace tessera::torch
