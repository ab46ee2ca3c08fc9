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

/// Megatron-LM's --ckpt-format torch.
class MegatronFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "torch"; }
  std::string program() const override { return "megatron"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;

  bool saves() const override { return true; }
  /// Layers that do nothing, and ranks of experts whose folders would have the same name.
  std::vector<options::Finding> refusals(const checkpoint::SavedRun& run) const override;
  /// What torch.load and Megatron-LM (with --no-load-rng: its generators are not ours) take: weights in fp32 and
  /// "optimizer.<state>.<weight>" become mp_rank_*/model_optim_rng.pt of each rank, with a `type` of 16 bits the
  /// weights of that type and the given ones their masters; and latest_checkpointed_iteration.txt.
  void write_rank(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank,
                  std::span<const checkpoint::TensorRange> tensors) const override;
  std::filesystem::path finish(const checkpoint::ForeignSave& save) const override;
};

/// The iteration that `folder` means: itself, or what its tracker latest_checkpointed_iteration.txt names. Throws
/// ConfigError when there is none.
std::filesystem::path megatron_iteration_folder(const std::filesystem::path& folder);

/// A checkpoint of Megatron-LM, --ckpt-format torch: iter_*/mp_rank_*/model_optim_rng.pt of however many tensor
/// parallel ranks, stages, virtual stages (model0, model1, ...) among them, and ranks that divide experts, with the
/// optimizer's state in the same file or in distrib_optim.pt. Read as data (torch_file.h).
///
/// The parts of several tensor-parallel ranks are joined as the models of these ranks divide their weights: those of
/// the recipe in `blobs`, else of the arguments in the file. Of weights that several ranks have whole or alike the
/// first rank's are read. Experts, which each rank counts from 0, get their numbers among all experts of a layer.
///
/// `read` and its like know whole weights by our names, and optimizer state as "optimizer.<slot>.<weight>"; of a weight
/// that has an fp32 master it is the master.
class MegatronCheckpoint final : public checkpoint::OpenedCheckpoint {
 public:
  /// `folder` as megatron_iteration_folder takes it. Throws ConfigError for ranks that are missing, for parts that are
  /// not those of the model, for the other formats of Megatron-LM, and for optimizer state that cannot be told apart by
  /// its groups; each by name.
  MegatronCheckpoint(const std::filesystem::path& folder, const options::Mappings& mappings);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return names_; }  ///< of weights
  bool has(const std::string& name) const override { return holders_.count(name) != 0; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override;
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const checkpoint::TensorRange& into) const override;

  std::vector<std::string> optimizer_names() const override;
  std::int64_t iteration() const override;
  /// Files of ours beside its ranks, iter_*/blobs: the resolved recipe and the tokenizer's files. Empty when this
  /// program did not save it.
  const checkpoint::Blobs& blobs() const override { return blobs_; }
  std::string description() const override;
  std::uint64_t bytes() const override;
  /// Reads everything and compares every checksum. Throws DamageError naming the file.
  void verify() const override;
  /// Throws ConfigError for a schedule that lacks a field.
  std::optional<checkpoint::Progress> progress() const override;
  /// The recipe that its arguments describe, as far as mappings/arguments/megatron.yaml knows them.
  options::Value recipe() const override;
  /// The ranks that saved it.
  const checkpoint::CheckpointLayout& layout() const { return layout_; }

 private:
  /// The ranks of which each has a part of a tensor, or the same part as others that are not among them.
  struct Holder {
    std::int64_t stage = 0;
    std::vector<std::int64_t> ranks;  ///< of the stage; -1: none has that part
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
  const MegatronRank& rank(std::int64_t rank, std::int64_t stage) const {
    return *ranks_[static_cast<std::size_t>(stage * layout_.ranks() + rank)];
  }
  const Holder& holder(const std::string& name) const;
  const WeightPart& weight_part(const std::string& name, std::int64_t rank) const;
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  checkpoint::Blobs blobs_;
  options::Mappings mappings_;
  checkpoint::CheckpointLayout layout_;
  std::vector<std::unique_ptr<MegatronRank>> ranks_;  ///< [stage][rank], rank below layout_.ranks()
  RankParts parts_;                                   ///< empty: there is one tensor-parallel rank
  std::vector<std::string> names_;
  std::map<std::string, Holder> holders_;  ///< our names, optimizer state included
};

/// Our name for Megatron's, by mappings/weights/megatron.yaml; empty for what is not a weight. Has {expert} where the
/// weights of all experts are one tensor.
std::string our_name_of_megatron(const std::string& theirs, const options::Value& table);

}  // namespace tessera::megatron
