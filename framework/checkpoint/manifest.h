#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// What a checkpoint's manifest.json says. The format is described in docs/checkpoints.md.
struct Manifest {
  struct TensorEntry {
    DType dtype;
    Shape global_shape;
    std::vector<Checkpoint::StoredRange> ranges;
  };
  struct StoredFile {
    std::uint64_t bytes = 0;         ///< of the whole file
    std::uint64_t header_bytes = 0;  ///< before the data of its first range
    std::uint32_t header_crc = 0;
  };
  struct StoredBlob {
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;
  };

  std::int64_t iteration = 0;
  std::map<std::string, StoredFile> files;
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, StoredBlob> blobs;

  /// Take over what another writer of the same checkpoint wrote. Throws BugError when the two disagree about a tensor.
  void merge(const Manifest& other);
};

inline constexpr int manifest_version = 1;

/// As JSON, with a sum over itself.
std::string write_manifest(const Manifest& manifest);

/// The reverse. Throws DamageError, beginning with `speaker`, when the text is not what was written; ConfigError when
/// it is, but of another version of the format.
Manifest read_manifest(const std::string& words, const std::string& speaker);

/// Throws DamageError when ranges do not cover their tensor once and whole, or lie outside of their files.
void check_ranges(const Manifest& manifest, const std::string& speaker);

/// What is wrong with the ranges of a tensor ("covers 6 of 8 elements", "two ranges overlap"); empty when they cover it
/// once and whole.
std::string coverage_problem(const Manifest::TensorEntry& tensor);

}  // namespace tessera::checkpoint
