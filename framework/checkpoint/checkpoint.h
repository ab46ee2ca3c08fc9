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
#include "framework/tensor/parameter_role.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// A box of a named global tensor: what one rank holds of it. Names, shapes and offsets are of the whole, unsplit
/// model, so any layout can load what any other saved.
struct TensorRange {
  std::string name;                   ///< "decoder.layers.0.mlp.linear_fc1.weight", "optimizer.exp_avg.<name>"
  Shape global_shape;                 ///< of the unsplit tensor
  std::vector<std::int64_t> offsets;  ///< of this box in it, one per dim
  Tensor tensor;                      ///< the box's elements, contiguous
  /// Of the parameter, also for its optimizer state; where the model is not known, matrix. Loading may add or leave out
  /// padding rows if they are those of the vocabulary.
  ParameterRole role = ParameterRole::matrix;
};

/// The whole of a tensor held by one process.
TensorRange whole(std::string name, const Tensor& tensor, ParameterRole role = ParameterRole::matrix);

/// Small named state: counters, resolved recipe, tokenizer files. Bytes as the caller gives them; a name is letters,
/// digits,
/// '.', '_' and '-', because each becomes a file of the checkpoint.
using Blobs = std::map<std::string, std::string>;

struct CheckpointInfo {
  std::filesystem::path folder;  ///< <root>/iter_0000100, see checkpoint_name
  std::int64_t iteration;
};

/// The bytes of a checkpoint are not those that were saved: a file is missing, cut short or altered. The message names
/// it.
class DamageError : public Error {
  using Error::Error;
};

/// Save as <root>/<checkpoint_name(prefix, iteration)>, all or nothing: everything is written into `<that>_tmp`,
/// synced, and then renamed; last the tracker file is updated. A checkpoint of the same iteration is replaced. Each
/// tensor must be covered once and whole by its ranges (BugError otherwise). Throws IoError (disk full, not writable):
/// then nothing new is there, no half-written folder either, earlier checkpoints are as before, and the caller may go
/// on and try again later.
void save_checkpoint(const std::filesystem::path& root, const std::string& prefix, std::int64_t iteration,
                     std::span<const TensorRange> tensors, const Blobs& blobs);

struct ReadOptions {
  bool check_crc = false;  ///< read the ranges that are touched as a whole and compare their sums
  bool convert = false;    ///< let the stored element type differ from the one asked for, and convert
};

/// An opened checkpoint: what it holds is known, the elements are still on the disk. Reading is thread-safe.
class Checkpoint {
 public:
  /// Reads and checks the manifest, the presence and the sizes of the files, and the blobs. Throws DamageError for
  /// anything missing, cut or altered; ConfigError for a folder that is not a checkpoint or of a newer format; IoError
  /// when the system refuses.
  static Checkpoint open(const std::filesystem::path& folder);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::filesystem::path& folder() const;
  std::int64_t iteration() const;

  std::vector<std::string> names() const;  ///< sorted
  bool has(const std::string& name) const;
  const Shape& shape(const std::string& name) const;  ///< global. Throws ConfigError for a name that is not there.
  DType dtype(const std::string& name) const;

  const Blobs& blobs() const;
  const std::string& blob(const std::string& name) const;  ///< Throws ConfigError for a name that is not there.

  /// Throw one ConfigError naming the first tensors that are missing or of another global shape. Tensors that the
  /// checkpoint has and nobody wants are no mistake.
  void must_fit(std::span<const TensorRange> wanted) const;

  /// Fill the box `into` from whatever ranges were saved. Throws ConfigError when the tensor is missing, of another
  /// shape or (without `convert`) another element type; DamageError when it cannot be read or its sum is wrong.
  void read(const TensorRange& into, const ReadOptions& options = {}) const;

  /// Read everything and compare every sum. Throws DamageError naming file and tensor.
  void verify() const;

  /// One range as it was saved: for `checkpoint inspect`.
  struct StoredRange {
    std::string file;
    std::uint64_t byte_offset, bytes;
    std::vector<std::int64_t> offsets;
    Shape extents;
    std::uint32_t crc;
  };
  const std::vector<StoredRange>& ranges(const std::string& name) const;
  std::uint64_t bytes() const;  ///< of all files together

 private:
  struct Content;
  explicit Checkpoint(std::unique_ptr<Content> content);
  std::unique_ptr<Content> content_;
};

/// The finished checkpoints under `root`, newest first, by their folder names alone: folders that end in `_tmp` or were
/// set aside are not among them, and the tracker file is not asked.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& root, const std::string& prefix);

/// Rename a damaged checkpoint to `<name>_damaged` (or `_damaged_2`, ...), write `reason` into it, and return the new
/// name. It is not picked again and not deleted. A symbolic link is renamed itself; nothing is written where it leads.
std::filesystem::path set_aside(const std::filesystem::path& folder, const std::string& reason);

/// Which checkpoints of a folder belong to the run that asks, by their folders; left out: all.
using BelongsToRun = std::function<bool(const std::filesystem::path& folder)>;

/// Told of each damaged checkpoint that newest_good met: which, why, and where it was put.
using OnDamage =
    std::function<void(const CheckpointInfo&, const std::string& reason, const std::filesystem::path& aside)>;

/// The newest checkpoint that opens (and with `crc_check` verifies); damaged ones on the way are set aside and told.
/// Nothing when there is none. A checkpoint of a newer format is not damage: that ConfigError goes through.
/// Checkpoints that do not belong are left alone.
std::optional<Checkpoint> newest_good(const std::filesystem::path& root, const std::string& prefix, bool crc_check,
                                      const OnDamage& on_damage = {}, const BelongsToRun& belongs = {});

/// Delete all checkpoints that belong but the newest `keep_max` (0: keep all), and `_tmp` folders that a crash left.
/// Only while no other process saves there.
void prune(const std::filesystem::path& root, const std::string& prefix, int keep_max,
           const BelongsToRun& belongs = {});

/// "iter_0000100", or with a prefix "network_iter_0000100" (the '_' is added when the prefix does not end in '_' or
/// '-').
std::string checkpoint_name(const std::string& prefix, std::int64_t iteration);
/// "latest_checkpointed_iteration.txt", with the prefix in front likewise: the newest iteration, for people and other
/// programs. This program does not read it.
std::string tracker_name(const std::string& prefix);

}  // namespace tessera::checkpoint
