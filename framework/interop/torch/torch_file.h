#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/interop/torch/pickle.h"
#include "framework/interop/torch/zip.h"
#include "framework/tensor/tensor.h"

namespace tessera::torch {

/// A file written by torch.save (a zip archive with a pickle and raw storages), memory-mapped and read as data: see
/// pickle.h. Nothing is executed.
class TorchFile {
 public:
  /// Throws ConfigError if the file is not of this format, is damaged or big-endian, or its pickle is rejected by
  /// Pickle; IoError.
  explicit TorchFile(const std::filesystem::path& path);
  /// An archive in the middle of a file: the `bytes` bytes from byte `begin` of `file`, which must have them. `name` is
  /// for messages. Throws as the other constructor.
  TorchFile(std::shared_ptr<const MappedFile> file, std::uint64_t begin, std::uint64_t bytes, std::string name);

  const PickleNode& root() const { return pickle_.root(); }
  /// Whether the node is a tensor.
  static bool is_tensor(const PickleNode& node);
  /// The tensor's elements in the mapped file, possibly unaligned; valid as long as this object. Throws ConfigError,
  /// beginning with the file and `what`, if the storage is missing or too short, the element type is unknown, or the
  /// elements are not contiguous; IoError if the file lost pages.
  Tensor tensor(const PickleNode& node, const std::string& what) const;

  /// The type and shape of a tensor, without its elements, which may lie anyhow in their storage. Throws as `tensor`.
  Tensor header(const PickleNode& node, const std::string& what) const;
  /// Copies the elements of a tensor, which may lie anyhow in their storage, as those of a slice of columns do, one
  /// after the other to `into`, which has their size. Throws as `tensor`.
  void read(const PickleNode& node, const std::string& what, std::span<std::byte> into) const;

  /// From now on the checksum of a tensor's storage is verified when tensor() or read() first needs it: DamageError.
  void check_sums() { checked_ = std::make_unique<Checked>(); }
  /// Reads everything and verifies the checksum of each entry. Throws DamageError.
  void verify() const;
  /// Throws IoError if what was read may be wrong, because the file was truncated or its disk failed. Call this before
  /// it is used.
  void require_intact() const { file_->require_intact(); }

  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bytes_.size(); }

 private:
  /// A tensor and its place in its storage.
  struct Located {
    DType type;
    std::vector<std::int64_t> dims, strides;  ///< strides in elements
    std::span<const std::byte> bytes;         ///< of the storage, from its first element to behind its last
    std::string entry;                        ///< name of the storage's entry in the archive
  };
  /// Storages whose checksum was verified.
  struct Checked {
    std::mutex mutex;
    std::set<std::string> entries;
  };
  Located locate(const PickleNode& node, const std::string& what) const;
  void verify_entry(const std::string& name, const ZipEntry& entry) const;
  void verify_once(const std::string& name) const;
  Pickle read_pickle() const;
  std::span<const std::byte> bytes_of(const ZipEntry& entry) const { return bytes_.subspan(entry.begin, entry.bytes); }
  std::string folder_in_archive() const;

  std::string name_;
  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> bytes_;  ///< of the archive
  std::map<std::string, ZipEntry> entries_;
  std::string folder_;  ///< folder of all entries in the archive, "model_optim_rng/"
  Pickle pickle_;
  std::unique_ptr<Checked> checked_;  ///< null: checksums are not verified
};

/// Writes an archive that torch.load can read. Build the pickle with `pickle`, and add tensors with `tensor`.
class TorchFileWriter {
 public:
  /// Gives the elements of a tensor, which stay valid until the next call of one of these functions.
  using Elements = std::function<std::span<const std::byte>()>;

  PickleWriter pickle;
  /// Adds a tensor with its own storage to the pickle. Its memory must stay valid until `write` returns.
  void tensor(const Tensor& tensor);
  /// Adds a tensor whose elements are asked for when the file is written, so that only one of them is in memory.
  void tensor(DType type, const Shape& shape, const Elements& elements);
  /// Adds a tensor whose elements are asked for in pieces when the file is written.
  void tensor(DType type, const Shape& shape, ArchiveWriter::Stream elements);
  /// Writes a file atomically. Throws IoError; then no new file exists.
  void write(const std::filesystem::path& path) const;
  /// Appends the archive to `file`. Returns its size in bytes. Throws IoError.
  std::uint64_t append_to(File& file) const;
  /// The size that append_to() would return; elements are not asked for.
  std::uint64_t bytes() const;

 private:
  struct Storage {
    std::uint64_t bytes;
    ArchiveWriter::Stream elements;
  };
  void put(ArchiveWriter& archive, const std::string& folder) const;

  std::vector<Storage> storages_;
};

}  // namespace tessera::torch
