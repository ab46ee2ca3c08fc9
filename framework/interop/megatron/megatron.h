#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/megatron_layout.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/megatron/megatron_rank.h"
#include "framework/options/mappings.h"

namespace tessera {

/// Whether `folder` holds what Megatron-LM saves with --ckpt-format torch, or is one iter_0000100 of that.
bool is_megatron_folder(const std::filesystem::path& folder);
/// The iteration that `folder` means: itself, or what its tracker latest_checkpointed_iteration.txt names. Throws
/// ConfigError when there is none.
std::filesystem::path megatron_iteration_folder(const std::filesystem::path& folder);

/// A checkpoint of Megatron-LM, --ckpt-format torch: iter_*/mp_rank_*/model_optim_rng.pt of however many tensor
/// parallel ranks and stages, virtual stages (model0, model1, ...) among them, with the optimizer's state in the same
/// file or in distrib_optim.pt. Read as data (torch_file.h).
///
/// `read` and its like know whole weights by our names, and optimizer state as "optimizer.<slot>.<weight>"; of a weight
/// that has an fp32 master it is the master.
class MegatronCheckpoint final : public WeightSource {
 public:
  /// `folder` as megatron_iteration_folder takes it. Throws ConfigError for ranks that are missing, for experts, for
  /// the other formats of Megatron-LM, and for optimizer state that cannot be told apart by its groups; each by name.
  MegatronCheckpoint(const std::filesystem::path& folder, const Mappings& mappings);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return names_; }  ///< of weights
  bool has(const std::string& name) const override { return holders_.count(name) != 0; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override { return part(name, 0).dtype(); }
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const TensorRange& into) const override;

  std::vector<std::string> optimizer_names() const;
  std::int64_t iteration() const;
  /// Files of ours beside its ranks, iter_*/blobs: the resolved recipe and the tokenizer's files. Empty when this
  /// program did not save it.
  const Blobs& blobs() const { return blobs_; }
  std::uint64_t bytes() const;  ///< of all files
  /// Reads everything and compares every checksum. Throws DamageError naming the file.
  void verify() const;
  /// Steps done, samples consumed, schedule and loss scale: progress.json of a checkpoint of ours.
  std::string progress() const;
  /// The recipe that its arguments describe, as far as mappings/arguments/megatron.yaml knows them.
  Value recipe() const;
  /// The ranks that saved it.
  const MegatronLayout& layout() const { return layout_; }

 private:
  void open_ranks(const Value& table);
  void place_layers();
  const MegatronRank& rank(std::int64_t tensor, std::int64_t stage) const {
    return *ranks_[static_cast<std::size_t>(stage * layout_.tensor + tensor)];
  }
  Tensor part(const std::string& name, std::int64_t tensor_rank) const;
  bool flag(const char* argument) const;
  [[noreturn]] void refuse(const std::string& story) const;

  std::filesystem::path folder_;
  Blobs blobs_;
  Mappings mappings_;
  MegatronLayout layout_;
  std::vector<std::unique_ptr<MegatronRank>> ranks_;  ///< [stage][tensor]
  std::optional<MegatronCut> cut_;
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t> holders_;  ///< our names, optimizer state included -> the stage
};

/// Our name for Megatron's, by mappings/weights/megatron.yaml; empty for what is no weight.
std::string our_name_of_megatron(const std::string& theirs, const Value& table);

/// Write `tensors` (weights in fp32, "optimizer.<slot>.<weight>"; together they cover every tensor) as
/// <root>/iter_0000100/mp_rank_*/model_optim_rng.pt of the ranks of `layout` and
/// <root>/latest_checkpointed_iteration.txt, so that torch.load and Megatron-LM (with --no-load-rng: its generators
/// are not ours) take it. `progress` is progress.json, `recipe` the resolved recipe; a `type` of 16 bits makes the
/// weights of that type and the given ones their masters. Returns the folder of the iteration. Throws IoError;
/// ConfigError for a layout that does not fit the tensors.
std::filesystem::path save_megatron(const std::filesystem::path& root, std::int64_t iteration,
                                    std::span<const TensorRange> tensors, const std::string& progress,
                                    const Value& recipe, DType type, const Mappings& mappings,
                                    const MegatronLayout& layout = {});

/// The same for one rank of many that save together: `tensors` need only cover what that rank writes. Every
/// (tensor rank, stage) must be written, by one process each, before finish_megatron.
void save_megatron_rank(const std::filesystem::path& root, std::int64_t iteration, std::span<const TensorRange> tensors,
                        const std::string& progress, const Value& recipe, DType type, const Mappings& mappings,
                        const MegatronLayout& layout, std::int64_t tensor_rank, std::int64_t stage);
/// The same of a checkpoint of ours, whatever layout saved it: reads what that rank writes and nothing else.
void save_megatron_rank(const std::filesystem::path& root, const Checkpoint& from, const std::string& progress,
                        const Value& recipe, DType type, const Mappings& mappings, const MegatronLayout& layout,
                        std::int64_t tensor_rank, std::int64_t stage);
/// When all ranks are written: the tracker file names the iteration. Returns its folder.
std::filesystem::path finish_megatron(const std::filesystem::path& root, std::int64_t iteration);

}  // namespace tessera
