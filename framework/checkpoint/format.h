#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/progress.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

// What training, recipes and commands know of checkpoints, whatever program's format they have. Our own format
// implements OpenedCheckpoint too (NativeCheckpoint); formats of other programs are registered in CheckpointFormats
// from above.

namespace tessera::checkpoint {

/// Our own format, as training_config.ckpt_format calls it.
inline constexpr const char* native_format = "safetensors";
/// Name of the resolved recipe in run folders and checkpoints.
inline constexpr const char* recipe_blob = "resolved.yaml";

/// An opened checkpoint: what it holds is known, the elements are still on the disk. `has`, `shape`, `dtype`, `read`
/// and
/// `read_box` know optimizer state too, as "optimizer.<state>.<weight>"; `names` has the weights alone. Reading is
/// thread-safe.
class OpenedCheckpoint : public WeightSource {
 public:
  virtual std::int64_t iteration() const { return 0; }
  virtual std::vector<std::string> optimizer_names() const { return {}; }
  /// How far the run that saved it was; nothing: it holds weights alone, and no run can resume from it. Throws
  /// ConfigError or DamageError when that cannot be read.
  virtual std::optional<Progress> progress() const { return std::nullopt; }
  /// Files saved beside the tensors: the resolved recipe (recipe_blob), the tokenizer's files.
  virtual const Blobs& blobs() const = 0;

  /// The groups of a recipe that the checkpoint itself describes; used if `blobs` has no resolved recipe. Throws
  /// ConfigError if it describes none.
  virtual options::Value recipe() const = 0;
  /// The options that choose the tokenizer beside it, "dataset_config.option=value"; empty: it has none.
  virtual std::vector<std::string> tokenizer_options() const { return {}; }

  virtual std::string description() const { return ""; }  ///< for people: format and ranks; empty: our own format
  virtual std::uint64_t bytes() const = 0;                ///< of all files together
  /// Reads everything and compares every checksum. Throws DamageError naming the file; ConfigError if the format has
  /// no checksums.
  virtual void verify() const = 0;

  /// Throws ConfigError naming the first tensors that are missing or of another shape. `all` (empty: `wanted`) has the
  /// names and shapes of all weights of the model, of which this rank wants `wanted`.
  virtual void must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange> all) const;
  /// The same for optimizer state.
  virtual void must_fit_optimizer(std::span<const TensorRange> wanted) const;
};

/// A checkpoint of our own format.
class NativeCheckpoint final : public OpenedCheckpoint {
 public:
  /// `check_crc`: `read` and `read_box` compare checksums.
  explicit NativeCheckpoint(Checkpoint checkpoint, bool check_crc = true)
      : checkpoint_(std::move(checkpoint)), check_crc_(check_crc) {}
  const Checkpoint& checkpoint() const { return checkpoint_; }

  const std::filesystem::path& folder() const override { return checkpoint_.folder(); }
  std::vector<std::string> names() const override { return CheckpointWeights(checkpoint_).names(); }
  bool has(const std::string& name) const override { return checkpoint_.has(name); }
  Shape shape(const std::string& name) const override { return checkpoint_.shape(name); }
  DType dtype(const std::string& name) const override { return checkpoint_.dtype(name); }
  void read(const std::string& name, const Tensor& into) const override { read_box(whole(name, into)); }
  void read_box(const TensorRange& into) const override { checkpoint_.read(into, {check_crc_, true}); }

  std::int64_t iteration() const override { return checkpoint_.iteration(); }
  std::vector<std::string> optimizer_names() const override;
  std::optional<Progress> progress() const override;
  const Blobs& blobs() const override { return checkpoint_.blobs(); }
  options::Value recipe() const override;
  std::uint64_t bytes() const override { return checkpoint_.bytes(); }
  void verify() const override { checkpoint_.verify(); }
  void must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange> all) const override;
  void must_fit_optimizer(std::span<const TensorRange> wanted) const override;

 private:
  Checkpoint checkpoint_;
  bool check_crc_;
};

/// What is saved in another program's format.
struct ForeignSave {
  std::filesystem::path root;  ///< the folder of the checkpoint is <root>/<checkpoint_name("", iteration)>
  std::int64_t iteration = 0;
  Progress progress;
  options::Value recipe;        ///< resolved
  DType type = DType::float32;  ///< of the weights; of 16 bits: their masters are saved beside them in fp32
  CheckpointLayout layout;      ///< the ranks that save; what they have of the model is RankWeights
  Blobs files = {};             ///< saved beside the tensors: the resolved recipe, the tokenizer's files
  options::Mappings mappings = {};
};

/// What a run asks of the format that it saves in.
struct SavedRun {
  CheckpointLayout layout;       ///< its ranks; `layers` is not given
  bool has_experts = false;      ///< some layer has experts
  bool has_noop_layers = false;  ///< some layer only passes its input on
};

/// Another program's format of checkpoints.
class CheckpointFormat {
 public:
  CheckpointFormat() = default;
  CheckpointFormat(const CheckpointFormat&) = delete;
  CheckpointFormat& operator=(const CheckpointFormat&) = delete;
  virtual ~CheckpointFormat() = default;

  /// As training_config.ckpt_format calls it, "torch".
  virtual std::string name() const = 0;
  /// As `checkpoint convert --from` calls it, "megatron".
  virtual std::string program() const = 0;
  /// The checkpoint that `folder` means: itself, or the newest of those in it. Nothing if it is neither.
  virtual std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const = 0;
  /// `folder` as `find` gives it. Throws ConfigError, IoError.
  virtual std::unique_ptr<OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                 const options::Mappings& mappings) const = 0;

  /// The groups of the model (model_config, moe_config), as a tree, of a run that begins with these weights, where its
  /// recipe says nothing. Nothing: the recipe says all. Reads no weights. Throws ConfigError.
  virtual std::optional<options::Value> model_config(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const;
  /// The file that model_config comes from.
  virtual std::filesystem::path model_config_file(const std::filesystem::path& folder) const { return folder; }
  /// Files that a run which begins with these weights keeps in its own checkpoints.
  virtual Blobs carried_files(const std::filesystem::path& folder) const;

  /// Whether a run can save in this format.
  virtual bool saves() const { return false; }
  /// What of such a run cannot be saved in this format. A finding's option is written with its group,
  /// "parallel_config.noop_layers". Empty: all can.
  virtual std::vector<options::Finding> refusals(const SavedRun&) const { return {}; }

  // Saving. write_rank is called for every rank of the layout, in whatever process has its tensors; when all are
  // written, one calls finish. A format that only reads throws ConfigError.

  /// Writes the files of one rank. `tensors` cover all weights that `rank` has, and the same elements of their
  /// optimizer state. Throws IoError; ConfigError for a layout that does not fit.
  virtual void write_rank(const ForeignSave& save, const RankWeights& rank, std::span<const TensorRange> tensors) const;
  /// Writes `files` and the tracker that names the iteration. Returns the checkpoint's folder.
  virtual std::filesystem::path finish(const ForeignSave& save) const;
};

/// Saves all of `ranks`, those of save.layout, from `tensors`, which cover every tensor. Returns the checkpoint's
/// folder. Throws ConfigError if the weights of the ranks are not those of `tensors`, in name or shape; and as
/// write_rank and finish.
std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const RankWeights> ranks, std::span<const TensorRange> tensors);
/// Saves one rank from a checkpoint of our own; reads what that rank has and nothing else. `finish` is the caller's.
void save_rank(const CheckpointFormat& format, const ForeignSave& save, const RankWeights& rank,
               const Checkpoint& from);

/// The formats of other programs that this program knows.
class CheckpointFormats {
 public:
  void add(std::shared_ptr<const CheckpointFormat> format) { all_.push_back(std::move(format)); }
  const std::vector<std::shared_ptr<const CheckpointFormat>>& all() const { return all_; }
  /// The format in which `folder` is, or holds, a checkpoint; null if it is of none of them. A folder with a checkpoint
  /// of our own is of none.
  const CheckpointFormat* of(const std::filesystem::path& folder) const;
  /// Null for a name that is not registered.
  const CheckpointFormat* find(const std::string& name) const;
  /// Throws ConfigError for a name that is not registered.
  const CheckpointFormat& named(const std::string& name) const;

 private:
  std::vector<std::shared_ptr<const CheckpointFormat>> all_;
};

/// The error of an option that needs another program's formats in a program without them.
inline constexpr const char* no_interop =
    "this program has no formats of other programs; link it with framework/interop and register them";

}  // namespace tessera::checkpoint
