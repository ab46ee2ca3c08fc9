#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "framework/base/files.h"
#include "framework/interop/torch/pickle.h"
#include "framework/interop/torch/zip.h"
#include "framework/tensor/tensor.h"

namespace tessera::torch {

/// A file as torch.save writes it (a zip archive of a pickle and of raw storages), mapped and read as data: see
/// pickle.h. Nothing is executed.
class TorchFile {
 public:
  /// Throws ConfigError for what is no such file, damaged, big-endian, or refused by the reader of pickles; IoError.
  explicit TorchFile(const std::filesystem::path& path);

  const PickleNode& root() const { return pickle_.root(); }
  /// Whether the node is a tensor.
  static bool is_tensor(const PickleNode& node);
  /// Its elements in the mapped file, at any address; valid as long as this. Throws ConfigError, beginning with the
  /// file and `what`, when the storage is missing or too short, the element type is unknown, or the elements do not lie
  /// one after the other.
  Tensor tensor(const PickleNode& node, const std::string& what) const;

  /// Reads everything and compares the checksum of each entry. Throws DamageError.
  void verify() const;

  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return file_.bytes().size(); }

 private:
  std::string name_;
  MappedFile file_;
  std::map<std::string, ZipEntry> entries_;
  std::string folder_;  ///< of every entry of the archive, "model_optim_rng/"
  Pickle pickle_;
};

/// Writes such a file, so that torch.load takes it. Build the pickle with `pickle`, putting tensors by `tensor`; their
/// memory must stay until `write`.
class TorchFileWriter {
 public:
  PickleWriter pickle;
  /// A tensor with a storage of its own.
  void tensor(const Tensor& tensor);
  /// Throws IoError; then no file of that name is new.
  void write(const std::filesystem::path& path);

 private:
  std::vector<Tensor> storages_;
};

}  // namespace tessera::torch
