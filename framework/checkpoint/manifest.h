#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The content of a checkpoint's manifest.json. docs/checkpoints.md describes the format.
struct Manifest {
  struct TensorEntry {
    DType dtype;
    Shape global_shape;
    std::vector<Checkpoint::StoredRange> ranges;
  };
  struct StoredFile {
    std::uint64_t bytes = 0;         ///< size of the whole file
    std::uint64_t header_bytes = 0;  ///< size of the header, before the data of the first range
    std::uint32_t header_crc = 0;
  };
  /// A file that is read whole.
  struct SmallFile {
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
  };
  /// Where the ranges of a tensor are.
  struct IndexEntry {
    DType dtype;
    Shape global_shape;
    std::vector<std::size_t> parts;  ///< indices in `parts`, ascending
  };

  std::int64_t iteration = 0;
  std::map<std::string, StoredFile> files;     ///< by file name
  std::map<std::string, TensorEntry> tensors;  ///< by tensor name
  std::map<std::string, SmallFile> blobs;      ///< by blob name
  /// The manifests of the writers by file name, if there are several writers; then `files` and `tensors` are in these.
  std::map<std::string, SmallFile> parts;
  /// The hosts that have the parts, by file name, if each host has a folder of its own (host_parts.h); else empty.
  std::map<std::string, std::string> hosts;
  /// The tensors in `parts` by name; empty in checkpoints of earlier versions of the program.
  std::map<std::string, IndexEntry> index;

  /// Adds the entries of another writer of the same checkpoint. Throws BugError if the two have different types or
  /// shapes of a tensor.
  void merge(const Manifest& other);
  /// Adds the tensors of a part to the index. `part` is its index in `parts`, larger than those of all calls before.
  /// Throws BugError as merge().
  void add_to_index(std::size_t part, const Manifest& of_part);
  /// Adds another index of the same parts. Throws BugError as merge().
  void merge_index(const std::map<std::string, IndexEntry>& other);
};

/// Versions of the format: of a manifest without parts, and with them.
inline constexpr int whole_manifest_version = 1, parted_manifest_version = 2;

/// The manifest as JSON text, including a checksum of the text.
std::string write_manifest(const Manifest& manifest);

/// Parses a text of write_manifest. Throws DamageError, beginning with `speaker`, if the text was altered; ConfigError
/// if it has a newer version of the format.
Manifest read_manifest(const std::string& words, const std::string& speaker);
/// An index as text, and back. `parts`: their number. read_index throws an exception if it is no such text.
std::string write_index(const std::map<std::string, Manifest::IndexEntry>& index);
std::map<std::string, Manifest::IndexEntry> read_index(const std::string& words, std::size_t parts);
/// Reads the manifest of one of several writers. Throws DamageError if it is missing or was altered; IoError.
Manifest read_part(const std::filesystem::path& folder, const std::string& name, const Manifest::SmallFile& part);
/// If the part `name` is not in `folder` because another host has it: a sentence that says so; else empty.
std::string about_other_host(const Manifest& manifest, const std::filesystem::path& folder, const std::string& name);
/// Adds the entries of all parts of the checkpoint in `folder` to its manifest. Throws as read_part.
void merge_parts(Manifest& manifest, const std::filesystem::path& folder);

/// Throws DamageError, beginning with `speaker`, if the ranges of a tensor do not cover it completely and without
/// overlap, or a range is outside of its file.
void check_ranges(const Manifest& manifest, const std::string& speaker);

/// Describes why the ranges do not cover the tensor completely and without overlap ("covers 6 of 8 elements", "two
/// ranges overlap"); empty if they do.
std::string coverage_problem(const Manifest::TensorEntry& tensor);
/// Throws BugError naming the first tensor with a coverage_problem(): for ranges that are about to be saved.
void must_cover(const Manifest& manifest);

}  // namespace tessera::checkpoint
