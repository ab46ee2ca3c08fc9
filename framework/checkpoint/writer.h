#pragma once

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The steps of save_checkpoint, for a checkpoint that several processes write together on a shared file system:
///
///   one process    begin()
///   each process   part = write(its index, its ranges)
///   one process    commit(all parts, blobs), or abandon() if one failed
///
/// The caller synchronizes the processes between the steps. Throws as save_checkpoint does.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path root, const std::string& prefix, std::int64_t iteration);

  /// Creates the empty folder `<name>_tmp`; one left by a crash is deleted first.
  void begin() const;
  /// Writes the ranges into files numbered by `writer`: model_00003.safetensors, and optimizer_00003.safetensors for
  /// names that begin with "optimizer.". Returns a text that `commit` needs.
  std::string write(int writer, std::span<const TensorRange> ranges) const;
  /// Writes blobs and the manifest, syncs, renames the folder to its final name, and updates the tracker file.
  void commit(std::span<const std::string> parts, const Blobs& blobs) const;
  /// Deletes everything that was written. Errors are ignored.
  void abandon() const noexcept;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path root_, folder_, tmp_;
  std::string prefix_;
  std::int64_t iteration_;
};

}  // namespace tessera::checkpoint
