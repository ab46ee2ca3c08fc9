#pragma once

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The steps of save_checkpoint, for a checkpoint that several processes write together on a file system they share:
///
///   one process    begin()
///   each process   part = write(its index, its ranges)
///   one process    commit(all parts, blobs), or abandon() when one failed
///
/// What orders the steps among the processes is the caller's. Throws as save_checkpoint does.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path root, const std::string& prefix, std::int64_t iteration);

  /// Make the empty folder `<name>_tmp`; one left by a crash is deleted.
  void begin() const;
  /// Write the ranges into files that carry the number of the writer: model_00003.safetensors, and those of names that
  /// begin with "optimizer." into optimizer_00003.safetensors. Returns what `commit` has to know, as text.
  std::string write(int writer, std::span<const TensorRange> ranges) const;
  /// Write blobs and manifest, sync, rename, update the tracker.
  void commit(std::span<const std::string> parts, const Blobs& blobs) const;
  /// Delete what was written; never throws.
  void abandon() const noexcept;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path root_, folder_, tmp_;
  std::string prefix_;
  std::int64_t iteration_;
};

}  // namespace tessera::checkpoint
