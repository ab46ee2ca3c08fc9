#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/checkpoint/mapped_tensor.h"
#include "framework/tensor/parameter_role.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// A box of a named global tensor: the part that one rank holds. Names, shapes and offsets refer to the whole,
/// unsharded model, so that a run with any parallel layout can load a checkpoint saved with any other.
struct TensorRange {
  std::string name;                   ///< "decoder.layers.0.mlp.linear_fc1.weight", "optimizer.exp_avg.<name>"
  Shape global_shape;                 ///< of the unsharded tensor
  std::vector<std::int64_t> offsets;  ///< of this box in the unsharded tensor, one per dim
  Tensor tensor;                      ///< the box's elements, contiguous
  /// Role of the parameter, also for its optimizer state; matrix if the model is not known. Loading may add or drop
  /// padding rows if the rows are those of the vocabulary.
  ParameterRole role = ParameterRole::matrix;
};

/// A range that covers all of `tensor`, for a tensor held by one process.
TensorRange whole(std::string name, const Tensor& tensor, ParameterRole role = ParameterRole::matrix);

/// Small files in a checkpoint, name -> content: progress, resolved recipe, tokenizer files. The content is any bytes.
/// A name consists of letters, digits, '.', '_' and '-', with at most one '/' for a folder, because each blob becomes a
/// file.
using Blobs = std::map<std::string, std::string>;

struct CheckpointInfo {
  std::filesystem::path folder;  ///< <root>/iter_0000100, see checkpoint_name
  std::int64_t iteration;
};

/// A checkpoint differs from what was saved: a file is missing, truncated or altered. The message names the file.
class DamageError : public Error {
  using Error::Error;
};

/// Saves a checkpoint as <root>/<checkpoint_name(prefix, iteration)>, atomically: everything is written into the folder
/// with `_tmp` appended to its name, synced, and then renamed; last, the tracker file is updated. A checkpoint of the
/// same iteration is replaced. The ranges of each tensor must cover it completely and without overlap; else throws
/// BugError. Throws IoError (disk full, not writable); then no new or half-written folder exists, earlier checkpoints
/// are unchanged, and the caller may continue and try again later.
void save_checkpoint(const std::filesystem::path& root, const std::string& prefix, std::int64_t iteration,
                     std::span<const TensorRange> tensors, const Blobs& blobs);

struct NamedRange;

struct ReadOptions {
  bool check_crc = false;  ///< read each stored range that is needed completely, and verify its checksum
  bool convert = false;    ///< allow the stored element type to differ from the requested one, and convert
  bool once = false;       ///< with check_crc: not the stored ranges that this object has verified so before
};

/// An opened checkpoint: the manifest is read, the elements are still on disk. Reading is thread-safe.
class Checkpoint {
 public:
  /// Opens a checkpoint folder: reads and checks the manifest, the presence and sizes of the files, and the blobs.
  /// Throws DamageError if something is missing, truncated or altered; ConfigError if the folder does not exist or has
  /// a newer format version; IoError if the system refuses.
  static Checkpoint open(const std::filesystem::path& folder);
  /// Opens a checkpoint folder as open() does, but reads only the index: the manifest of a writer is read, and its
  /// files are looked for, when a tensor or a share() is read that the writer has a range of. Then the functions that
  /// read throw DamageError about it. Checkpoints without an index are opened whole.
  static Checkpoint open_index(const std::filesystem::path& folder);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::filesystem::path& folder() const;
  std::int64_t iteration() const;

  std::vector<std::string> names() const;  ///< sorted
  bool has(const std::string& name) const;
  const Shape& shape(const std::string& name) const;  ///< global. Throws ConfigError if there is no tensor `name`.
  DType dtype(const std::string& name) const;         ///< as stored. Throws ConfigError as shape() does.

  const Blobs& blobs() const;
  const std::string& blob(const std::string& name) const;  ///< Throws ConfigError if there is no blob `name`.

  /// Throws one ConfigError that names the first tensors that are missing or have another global shape. Tensors of the
  /// checkpoint that are not wanted are not an error.
  void must_fit(std::span<const TensorRange> wanted) const;

  /// Reads the box `into` from the stored ranges, in whatever way the tensor was divided when saved. Throws ConfigError
  /// if the tensor is missing, has another shape or (without `convert`) another element type; DamageError if it cannot
  /// be read or, with `check_crc`, a checksum is wrong.
  void read(const TensorRange& into, const ReadOptions& options = {}) const;

  /// The elements of the box `range` in a mapped file, if one stored range has them one after the other, in the type of
  /// `range` and aligned to the size of an element; else nothing, as if the checkpoint is divided. `range` is not
  /// written. Throws ConfigError if there is no such tensor; DamageError if the file cannot be read or, with
  /// `check_crc`, the checksum of the stored range is wrong.
  std::optional<MappedTensor> map(const TensorRange& range, bool check_crc) const;
  /// The box `range` of a matrix as blocks of rows in mapped files, in the type in which it was saved; nothing if a row
  /// of it is in several stored ranges, or is not aligned. Throws as map().
  std::optional<StoredMatrix> stored(const TensorRange& range, bool check_crc) const;
  /// If the checkpoint was saved without frozen parameters, a sentence that says so and names where they are; else
  /// empty.
  std::string about_left_out() const;

  /// Reads everything and verifies every checksum. Throws DamageError naming file and tensor.
  void verify() const;

  /// One range of a tensor as it was saved, for `checkpoint inspect`.
  struct StoredRange {
    std::string file;                  ///< name in the checkpoint folder
    std::uint64_t byte_offset, bytes;  ///< position and size of the data in the file
    std::vector<std::int64_t> offsets;
    Shape extents;
    std::uint32_t crc;
  };
  /// The stored ranges of a tensor. Throws ConfigError if there is no tensor `name`.
  const std::vector<StoredRange>& ranges(const std::string& name) const;
  std::uint64_t bytes() const;  ///< size of all files together, if open() opened it

  /// A header of a file, which no tensor is in.
  struct StoredHeader {
    std::string file;
    std::uint64_t bytes;
    std::uint32_t crc;
  };
  struct Share {
    std::vector<NamedRange> ranges;  ///< in the order in which they are in the files
    std::vector<StoredHeader> headers;
  };
  /// The share of reader `which` when `of` readers read all tensors whose names are `wanted`: over all readers, each
  /// stored range once, and about as many bytes each. Opens only the manifests of the writers in it. Throws
  /// DamageError.
  Share share(std::size_t which, std::size_t of, const std::function<bool(const std::string&)>& wanted) const;
  /// The same of the parts with these indices alone, in a checkpoint that is divided over hosts.
  Share share(std::size_t which, std::size_t of, const std::vector<std::size_t>& parts,
              const std::function<bool(const std::string&)>& wanted) const;
  /// Whether its parts are in folders of several hosts (host_parts.h), so that this folder may have only some of them.
  bool is_divided() const;
  /// Of each part, whether its manifest is in this folder.
  std::vector<bool> parts_here() const;

 private:
  struct Content;
  explicit Checkpoint(std::unique_ptr<Content> content);
  std::unique_ptr<Content> content_;
};

/// The complete checkpoints under `root`, newest first, found by their folder names alone. Folders that end in `_tmp`
/// or were set aside are not listed, and the tracker file is not read.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root, const std::string& prefix);

/// Renames a damaged checkpoint to `<name>_damaged` (or `_damaged_2`, ...), writes `reason` into it, and returns the
/// new path. Such a folder is never loaded or deleted automatically. A symbolic link is renamed itself; nothing is
/// written into its target.
std::filesystem::path set_aside(const std::filesystem::path& folder, const std::string& reason);

/// The `_tmp` folders of checkpoints with this prefix, in any order.
std::vector<CheckpointInfo> list_unfinished(const std::filesystem::path& root, const std::string& prefix);
/// Deletes these: a process that ended while it saved has left them. Call it only while no process saves to `root`.
/// Throws IoError.
void delete_unfinished(const std::filesystem::path& root, const std::string& prefix);

/// Deletes the checkpoint in `folder`: no half-deleted one has a final name at any time. Throws IoError; a
/// write-protected folder stays as it is.
void delete_checkpoint(const std::filesystem::path& folder);

/// "iter_0000100", or with a prefix "network_iter_0000100" (the '_' is added when the prefix does not end in '_' or
/// '-').
std::string checkpoint_name(const std::string& prefix, std::int64_t iteration);
/// The iteration in the name of a folder, as checkpoint_name writes it with any prefix; nothing for other names.
std::optional<std::int64_t> iteration_in_name(const std::filesystem::path& folder);
/// "latest_checkpointed_iteration.txt", with the prefix in front as in checkpoint_name: the tracker file with the
/// newest iteration, for people and other programs. Of our own checkpoints it is not read.
std::string tracker_name(const std::string& prefix);
/// The name of the folder that the tracker file (without prefix) in `root` names, "iter_0000100" or "release"; nothing
/// if there is no tracker file or it says something else.
std::optional<std::string> tracked_name(const std::filesystem::path& root);

}  // namespace tessera::checkpoint
