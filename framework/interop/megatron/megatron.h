#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/megatron/megatron_parts.h"
#include "framework/interop/megatron/megatron_rank.h"
#include "framework/options/mappings.h"

namespace tessera::megatron {

/// The checkpoint format of Megatron-LM's --ckpt-format torch.
class MegatronFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "torch"; }
  std::string program() const override { return "megatron"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::vector<checkpoint::FoundCheckpoint> list(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open_described(const std::filesystem::path& folder,
                                                               const options::Mappings& mappings,
                                                               const options::Value& model) const override;

  bool saves() const override { return true; }
  /// Refuses no-op layers, and expert-parallel ranks whose folders would have the same name.
  std::vector<options::Finding> refusals(const checkpoint::SavedRun& run) const override;
  /// Writes a checkpoint that torch.load and Megatron-LM can read (Megatron-LM with --no-load-rng, because its random
  /// generators are not ours). Weights in fp32 and "optimizer.<state>.<weight>" are written to
  /// mp_rank_*/model_optim_rng.pt of each rank; with a 16-bit `type`, the weights in that type, and the given fp32
  /// weights as their master weights. `finish` writes latest_checkpointed_iteration.txt.
  void begin(const checkpoint::ForeignSave& save) const override;
  void write_rank(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank,
                  const checkpoint::StateSnapshot& state) const override;
  std::filesystem::path finish(const checkpoint::ForeignSave& save) const override;
  void abandon(const checkpoint::ForeignSave& save) const noexcept override;
};

/// The result of MegatronFormat::find. Throws ConfigError if there is none.
std::filesystem::path megatron_iteration_folder(const std::filesystem::path& folder);

/// A checkpoint of Megatron-LM, --ckpt-format torch: iter_*/mp_rank_*/model_optim_rng.pt of any number of
/// tensor-parallel ranks, pipeline stages, virtual stages (model0, model1, ...) and expert-parallel ranks, with the
/// optimizer state in the same file or in distrib_optim.pt. Read as data (torch_file.h), without executing code.
///
/// The shards of tensor-parallel ranks are joined as the models of these ranks divide their weights; the model is that
/// of the recipe in `blobs`, else of the arguments in the file. Weights that several ranks have completely are read
/// from the first rank. Experts, which each rank counts from 0, get their numbers among all experts of a layer.
///
/// `read` and the other functions accept whole weights by our names, and optimizer state as
/// "optimizer.<state>.<weight>"; for a weight with an fp32 master weight, they return the master weight.
class MegatronCheckpoint final : public checkpoint::OpenedCheckpoint {
 public:
  /// `folder` is an argument of megatron_iteration_folder. Throws ConfigError, by name, for missing ranks, parts that
  /// do not belong to the model, other checkpoint formats of Megatron-LM, and optimizer state that cannot be assigned
  /// to parameters by its groups. `model`: the recipe of the model, for files without arguments; empty: not known.
  MegatronCheckpoint(const std::filesystem::path& folder, const options::Mappings& mappings,
                     const options::Value& model = {});

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return names_; }  ///< of weights
  bool has(const std::string& name) const override { return holders_.count(name) != 0; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override;
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const checkpoint::TensorRange& into) const override;
  bool reads_rows(const std::string& name) const override;

  std::vector<std::string> optimizer_names() const override;
  std::int64_t iteration() const override;
  /// Files that Tessera saved beside the ranks, iter_*/blobs: the resolved recipe and the tokenizer's files. Empty if
  /// another program saved the checkpoint.
  const checkpoint::Blobs& blobs() const override { return blobs_; }
  std::string description() const override;
  std::uint64_t bytes() const override;
  /// Reads everything and verifies every checksum. Throws DamageError naming the file.
  void verify() const override;
  /// Nothing for weights alone, a folder named `release`. Throws ConfigError if a field of the saved schedule is
  /// missing.
  std::optional<checkpoint::Progress> progress() const override;
  /// The recipe that the saved arguments describe, as far as mappings/arguments/megatron.yaml has rows for them;
  /// without arguments, the one that was given. Throws ConfigError if there is neither.
  options::Value recipe() const override;
  std::map<std::string, std::int64_t> parallel_sizes() const override { return ranks_[0]->saved().parallel_sizes(); }
  std::vector<std::string> notes() const override;
  /// The layout of the ranks that saved the checkpoint.
  const checkpoint::CheckpointLayout& layout() const { return layout_; }

 private:
  /// The ranks that together hold a tensor; ranks with copies of the same parts are not listed.
  struct Holder {
    std::int64_t stage = 0;
    std::vector<std::int64_t> ranks;  ///< ranks of the stage; -1: no rank has that part
  };
  using NamedFolders = std::map<std::string, std::vector<std::int64_t>>;         ///< with the numbers in their names
  using Folders = std::map<std::pair<std::int64_t, std::int64_t>, std::string>;  ///< by stage and rank

  void open_ranks(const options::Value& table);
  Folders folders_by_place(const NamedFolders& named, const MegatronRank& first);
  void place_layers(const options::Value& table);
  void note_holders(std::int64_t stage, std::int64_t rank);
  void check_holders() const;
  std::vector<std::string> names_of_chunk(std::int64_t stage, std::size_t chunk, const options::Value& table) const;
  void know_parts();
  bool is_tied() const;
  std::int64_t heads_of_rank() const;
  const MegatronRank& rank(std::int64_t rank, std::int64_t stage) const {
    return *ranks_[static_cast<std::size_t>(stage * layout_.ranks() + rank)];
  }
  const Holder& holder(const std::string& name) const;
  const WeightPart& weight_part(const std::string& name, std::int64_t rank) const;
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  checkpoint::Blobs blobs_;
  options::Mappings mappings_;
  options::Value model_;  ///< that was given
  checkpoint::CheckpointLayout layout_;
  std::vector<std::unique_ptr<MegatronRank>> ranks_;  ///< [stage][rank], rank below layout_.ranks()
  RankParts parts_;                                   ///< empty: there is one tensor-parallel rank
  std::vector<std::string> names_;
  std::map<std::string, Holder> holders_;  ///< our names, optimizer state included
};

/// Our name for Megatron-LM's name `theirs`, by mappings/weights/megatron.yaml; empty if it is not a weight. It
/// contains {expert} if one tensor has the weights of all experts.
std::string our_name_of_megatron(const std::string& theirs, const options::Value& table);

}  // namespace tessera::megatron
