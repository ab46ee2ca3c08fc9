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

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/progress.h"
#include "framework/checkpoint/state_snapshot.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

// The interface through which training, recipes and commands access checkpoints of any program's format. Our own format
// implements OpenedCheckpoint too (NativeCheckpoint); formats of other programs are registered in CheckpointFormats by
// a higher component.

namespace tessera::checkpoint {

/// Our own format's name in training_config.ckpt_format.
inline constexpr const char* native_format = "safetensors";
/// Name of the resolved recipe in run folders and checkpoints.
inline constexpr const char* recipe_blob = "resolved.yaml";

/// The progress that a run of ours saved as one of `blobs`; nothing if there is none. Throws DamageError, naming
/// `folder`.
std::optional<Progress> progress_in(const Blobs& blobs, const std::filesystem::path& folder);

/// An opened checkpoint: its index is read, the elements are still on disk. `has`, `shape`, `dtype`, `read` and
/// `read_box` also accept optimizer state, as "optimizer.<state>.<weight>"; `names` lists only the weights. Reading is
/// thread-safe.
class OpenedCheckpoint : public WeightSource {
 public:
  virtual std::int64_t iteration() const { return 0; }  ///< 0: not known
  /// The names of the optimizer state tensors, "optimizer.<state>.<weight>"; empty: the checkpoint has none.
  virtual std::vector<std::string> optimizer_names() const { return {}; }
  /// Progress of the run that saved the checkpoint. Nothing: the checkpoint has only weights, and no run can resume
  /// from it. Throws ConfigError or DamageError if the progress cannot be read.
  virtual std::optional<Progress> progress() const { return std::nullopt; }
  /// A run that load_checkpoint gives such a checkpoint with optimizer state begins with its weights alone unless
  /// resume_training is true: its progress is known in part only.
  virtual bool continues_by_request() const { return false; }
  /// Files saved beside the tensors: the resolved recipe (recipe_blob), the tokenizer's files.
  virtual const Blobs& blobs() const = 0;

  /// The recipe groups that describe the checkpoint's model; used if `blobs` has no resolved recipe. Throws ConfigError
  /// if the checkpoint describes no model.
  virtual options::Value recipe() const = 0;
  /// Options of parallel_config with the sizes of the run that saved the checkpoint, "parallel_config.option"; those
  /// that are not known are left out. Used if `blobs` has no resolved recipe.
  virtual std::map<std::string, std::int64_t> parallel_sizes() const { return {}; }
  /// The options that select the tokenizer saved with the checkpoint, "dataset_config.option=value"; empty: there is
  /// none.
  virtual std::vector<std::string> tokenizer_options() const { return {}; }

  /// What the reader of another program's checkpoint decided, for people, one line each: settings that it ignored.
  virtual std::vector<std::string> notes() const { return {}; }
  /// Of these, the lines about its files: what was found in them and is not read.
  virtual std::vector<std::string> notes_of_files() const { return {}; }
  virtual std::string description() const { return ""; }  ///< format and ranks, for people; empty: our own format
  virtual std::uint64_t bytes() const = 0;                ///< size of all files together
  /// Reads everything and verifies every checksum. Throws DamageError naming the file; ConfigError if the format has no
  /// checksums.
  virtual void verify() const = 0;

  /// Throws ConfigError naming the first weights that are missing or have another shape. `wanted` are the weights of
  /// this rank; `all` has the names and shapes of all weights of the model, or is empty if `wanted` has all of them.
  virtual void must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange> all) const;
  /// Throws ConfigError naming the first tensors of optimizer state that are missing or have another shape.
  virtual void must_fit_optimizer(std::span<const TensorRange> wanted) const;
};

/// A checkpoint of our own format.
class NativeCheckpoint final : public OpenedCheckpoint {
 public:
  /// `check_crc`: `read` and `read_box` verify checksums.
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
  std::optional<MappedTensor> map(const TensorRange& range) const override {
    return checkpoint_.map(range, check_crc_);
  }
  std::optional<StoredMatrix> stored(const TensorRange& range) const override {
    return checkpoint_.stored(range, check_crc_);
  }
  std::string about_left_out() const override { return checkpoint_.about_left_out(); }

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

/// The description of a checkpoint to be saved in another program's format.
struct ForeignSave {
  std::filesystem::path root;  ///< the folder of the checkpoint is <root>/<checkpoint_name("", iteration)>
  std::int64_t iteration = 0;
  Progress progress;
  options::Value recipe;           ///< resolved
  DType type = DType::float32;     ///< of the weights; if it has 16 bits, their fp32 master weights are saved too
  bool without_optimizer = false;  ///< neither optimizer state nor fp32 master weights are saved
  CheckpointLayout layout;         ///< the ranks that save; RankWeights says which weights each rank has
  Blobs files = {};                ///< saved beside the tensors: the resolved recipe, tokenizer files
  options::Mappings mappings = {};
  int version = 0;          ///< minor version of the program that will read it; 0: any, which the format chooses
  std::int64_t tokens = 0;  ///< of a conversion: rows of the vocabulary that must be kept; 0: all
};

/// The properties of a run that its checkpoint format must support.
struct SavedRun {
  CheckpointLayout layout;       ///< the run's ranks; `layers` is empty
  bool has_experts = false;      ///< some layer has experts
  bool has_noop_layers = false;  ///< some layer is a no-op, which returns its input
};

/// How the weights of linear layers are to be quantised.
struct Quantisation {
  bool nested = false;          ///< maxima of blocks in 8 bits
  std::filesystem::path cache;  ///< the folder for what is written
  bool writes = true;           ///< false: a folder that is not there is not written, and the given one is the result
  /// Receives a line before the work and after each file that is written; may be empty.
  std::function<void(const std::string&)> tell = {};
};

class CheckpointFormat;

/// A checkpoint found by the names of folders and files; its content was not read.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t iteration = 0;
  /// Another program's format; null: our own. Owned by the CheckpointFormats.
  const CheckpointFormat* format = nullptr;
  std::string unfinished = {};  ///< why its save did not come to its end, for people; empty: it did
};

/// A checkpoint format of another program.
class CheckpointFormat {
 public:
  CheckpointFormat() = default;
  CheckpointFormat(const CheckpointFormat&) = delete;
  CheckpointFormat& operator=(const CheckpointFormat&) = delete;
  virtual ~CheckpointFormat() = default;

  /// Name in training_config.ckpt_format, "torch".
  virtual std::string name() const = 0;
  /// Name in `tessera checkpoint convert --from`, "megatron".
  virtual std::string program() const = 0;
  /// Finds the checkpoint that `folder` denotes: `folder` itself, or one in it: that which the tracker file names, if
  /// it is whole, else the newest whole one, else the newest. Nothing if there is none.
  virtual std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const = 0;
  /// All checkpoints of this format in `folder`, newest first, those included whose save did not come to its end. Files
  /// are found, not read.
  virtual std::vector<FoundCheckpoint> list(const std::filesystem::path& folder) const;
  /// Opens the checkpoint in `folder`, a result of `find`. Throws ConfigError, IoError.
  virtual std::unique_ptr<OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                 const options::Mappings& mappings) const = 0;
  /// The same; `model` are the recipe groups of its model, for a checkpoint that does not describe it.
  virtual std::unique_ptr<OpenedCheckpoint> open_described(const std::filesystem::path& folder,
                                                           const options::Mappings& mappings,
                                                           const options::Value& model) const;

  /// The recipe groups of the model (model_config, moe_config), as a tree, for a run that begins with these weights and
  /// whose recipe does not give these options. Nothing: the recipe must give them. Does not read weights. Adds what it
  /// ignored to `notes`, one line each. Throws ConfigError.
  virtual std::optional<options::Value> model_config(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings,
                                                     std::vector<std::string>& notes) const;
  /// The table of mappings/weights, "weights/llama.yaml", with the program's names of this checkpoint's weights; empty:
  /// there is none. Throws as model_config().
  virtual std::string weights_table(const std::filesystem::path& folder, const options::Mappings& mappings) const;
  /// The file that model_config() reads.
  virtual std::filesystem::path model_config_file(const std::filesystem::path& folder) const { return folder; }
  /// Files that a run that begins with these weights copies into its own checkpoints.
  virtual Blobs carried_files(const std::filesystem::path& folder) const;

  /// The folder of a model with the weights of `folder`, of whose linear layers those are in NF4 (kernels/nf4.h) that
  /// are not the output layer, a router or in an expert. Writes it to `how.cache`, unless it is there. Processes may
  /// call this at the same time: one writes. Adds what was done to `notes`. Throws ConfigError, IoError.
  virtual std::filesystem::path quantised(const std::filesystem::path& folder, const Quantisation& how,
                                          const options::Mappings& mappings, std::vector<std::string>& notes) const;
  /// The bytes that `elements` elements of the weight `name` have in that folder; nothing: it is not in NF4 there.
  virtual std::optional<std::int64_t> quantised_bytes(const std::string& /*name*/, std::int64_t /*elements*/,
                                                      const Quantisation&) const {
    return std::nullopt;
  }

  /// Whether a run can save in this format.
  virtual bool saves() const { return false; }
  /// The properties of the run that this format does not support. The option of a finding includes its group,
  /// "parallel_config.noop_layers". Empty: everything is supported.
  virtual std::vector<options::Finding> refusals(const SavedRun&) const { return {}; }

  /// Whether every rank of a run saves the elements that it owns (begin, write_owned, finish); else, the ranks that
  /// together hold every weight save what they hold (write_rank, finish).
  virtual bool saves_owned() const { return false; }
  /// Called in one process before all others write. Throws IoError.
  virtual void begin(const ForeignSave&) const {}
  /// Writes what the rank with the weights `rank` owns, of weights and optimizer state: over all calls, each element
  /// once. `writer` is a number that no other call has. Throws IoError.
  virtual void write_owned(const ForeignSave& save, const RankWeights& rank, std::int64_t writer,
                           const StateSnapshot& owned) const;
  /// Deletes what an unfinished save has written. Called in one process, if a call threw.
  virtual void abandon(const ForeignSave&) const noexcept {}

  // Saving: after begin, write_rank is called for every rank of the layout, in any process that has the rank's tensors.
  // After all calls have returned, one process calls finish; if one threw, abandon. A format that cannot save throws
  // ConfigError.

  /// Writes the files of one rank. `state` covers all weights of `rank`, and the same elements of their optimizer
  /// state: in ranges that are the boxes of `rank`, or in any ranges that have their elements in memory. Throws
  /// IoError; ConfigError if the layout does not fit.
  virtual void write_rank(const ForeignSave& save, const RankWeights& rank, const StateSnapshot& state) const;
  /// Writes `files` and the tracker file with the iteration. Returns the checkpoint's folder.
  virtual std::filesystem::path finish(const ForeignSave& save) const;
};

/// The shapes that `ranks` have of the tensors of `source` that differs_in_padding(), by name.
std::map<std::string, Shape> other_paddings(std::span<const RankWeights> ranks, const WeightSource& source,
                                            std::int64_t tokens);

/// Saves all `ranks` of save.layout in one process, from `tensors`, which cover every tensor of the model. Returns the
/// checkpoint's folder. Throws ConfigError if the names or shapes of the ranks' weights are not those of `tensors`; and
/// as write_rank and finish do.
std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const RankWeights> ranks, std::span<const TensorRange> tensors);

/// The same from `source`, which is read in pieces; its checksums are verified first. Rows of other_paddings() are
/// added or left out. Throws also DamageError; then nothing remains.
std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const RankWeights> ranks, const Checkpoint& source);

/// Saves all `ranks` of save.layout in one process, in a format that saves_owned(): rank i saves the boxes `owned[i]`
/// of weights, and of their optimizer state in `source`, which is read in pieces; its checksums are verified first.
/// Returns the checkpoint's folder. Throws as save_all_ranks does, and DamageError; then nothing remains.
std::filesystem::path save_owned_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                       std::span<const RankWeights> ranks,
                                       std::span<const std::vector<WeightPart>> owned, const Checkpoint& source);

/// The registered formats of other programs.
class CheckpointFormats {
 public:
  void add(std::shared_ptr<const CheckpointFormat> format) { all_.push_back(std::move(format)); }
  const std::vector<std::shared_ptr<const CheckpointFormat>>& all() const { return all_; }
  /// The checkpoints of all formats in `folder`, those of a format newest first; each is of one format.
  std::vector<FoundCheckpoint> list(const std::filesystem::path& folder) const;
  /// The format of the checkpoint that `folder` is or contains; null if it is of no registered format, such as a folder
  /// with a checkpoint in our own format. Owned by this object.
  const CheckpointFormat* of(const std::filesystem::path& folder) const;
  /// The format `name`; null if it is not registered. Owned by this object.
  const CheckpointFormat* find(const std::string& name) const;
  /// The format `name`. Throws ConfigError if it is not registered.
  const CheckpointFormat& named(const std::string& name) const;

 private:
  std::vector<std::shared_ptr<const CheckpointFormat>> all_;
};

/// Error text for an option that needs another program's format, in a program that has none registered.
inline constexpr const char* no_interop =
    "this program has no formats of other programs; link it with framework/interop and register them";

}  // namespace tessera::checkpoint
