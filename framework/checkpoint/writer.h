#pragma once

#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/state_snapshot.h"

namespace tessera::checkpoint {

/// The manifest that a writer wrote beside its files; 0 bytes: it had nothing to write.
struct WrittenPart {
  int writer = 0;
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;
};

/// The steps of save_checkpoint, for a checkpoint that `writers` processes write together on a shared file system:
///
///   one process    begin()
///   each process   part = write(its index, its ranges)
///   one process    commit(all parts, blobs), or abandon() if one failed
///
/// The caller synchronizes the processes between the steps. Throws as save_checkpoint does.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path root, const std::string& prefix, std::int64_t iteration, int writers = 1);

  /// Creates the empty folder `<name>_tmp`; one left by a crash is deleted first.
  void begin() const;
  /// Writes the ranges of `state` into files numbered by `writer`: model_00003.safetensors, optimizer_00003.safetensors
  /// for names that begin with "optimizer.", and, of several writers, the manifest of these, manifest_00003.json.
  /// Memory: one piece of 1 MiB, and the manifest.
  WrittenPart write(int writer, const StateSnapshot& state);
  /// Writes blobs and the manifest, syncs, renames the folder to its final name, and updates the tracker file. Throws
  /// BugError if the ranges do not cover a tensor exactly once; but not if other objects wrote some of the parts: then
  /// the caller has checked that (cover_exactly()).
  void commit(std::span<const WrittenPart> parts, const Blobs& blobs) const;
  /// The tensors of the writers that this object knows of, for the index of the checkpoint: it has written for them, or
  /// add_index() was called. Empty if there is none.
  std::string index() const;
  /// Takes the index() of another object, so that commit() need not read the manifests of its writers: if each process
  /// takes those of two others, and the one that commits has all, no process reads or receives more than the index.
  /// `part`: what the other object has written. Throws IoError if that is not here: then the two have no folder in
  /// common.
  void add_index(const std::string& index, const WrittenPart& part);
  /// Before commit(), if the processes write into folders of several hosts that have none in common: names of the
  /// hosts, and list_of_ranges(), of each writer. Then one process of each host calls begin() and commit(), which write
  /// the same index.
  void divide(std::vector<std::string> hosts, std::vector<std::string> lists);
  /// Deletes everything that was written. Errors are ignored.
  void abandon() const noexcept;

  const std::filesystem::path& folder() const { return folder_; }
  const std::filesystem::path& unfinished() const { return tmp_; }  ///< its name before commit()

 private:
  Manifest manifest_of(std::span<const WrittenPart> parts) const;

  std::filesystem::path root_, folder_, tmp_;
  std::string prefix_;
  std::int64_t iteration_;
  int writers_;
  int written_ = 0;                         ///< parts that this object has written
  Manifest own_;                            ///< their entries
  Manifest known_;                          ///< its index: the tensors of writers, by the numbers of these
  std::vector<std::string> hosts_, lists_;  ///< of each writer; empty: all have one folder
};

/// save_checkpoint() of what a snapshot has, by one process.
void save_checkpoint(const std::filesystem::path& root, const std::string& prefix, std::int64_t iteration,
                     const StateSnapshot& state, const Blobs& blobs);

}  // namespace tessera::checkpoint
