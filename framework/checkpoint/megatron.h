#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/torch_file.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/options/mappings.h"

namespace tessera {

/// Whether `folder` holds what Megatron-LM saves with --ckpt-format torch, or is one iter_0000100 of that.
bool is_megatron_folder(const std::filesystem::path& folder);
/// The iteration that `folder` means: itself, or what its tracker latest_checkpointed_iteration.txt names. Throws
/// ConfigError when there is none.
std::filesystem::path megatron_iteration_folder(const std::filesystem::path& folder);

/// A checkpoint of Megatron-LM, --ckpt-format torch, saved by one rank: iter_*/mp_rank_00/model_optim_rng.pt. Read as
/// data (torch_file.h).
///
/// `read` and its like know weights by our names, and optimizer state as "optimizer.<slot>.<weight>"; of a weight that
/// has an fp32 master it is the master.
class MegatronCheckpoint final : public WeightSource {
 public:
  /// `folder` as megatron_iteration_folder takes it. Throws ConfigError for several ranks or virtual stages, for the
  /// other formats of Megatron-LM, and for optimizer state that cannot be told apart by its groups; each by name.
  MegatronCheckpoint(const std::filesystem::path& folder, const Mappings& mappings);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return names_; }  ///< of weights
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  Shape shape(const std::string& name) const override { return tensor(name).shape(); }
  DType dtype(const std::string& name) const override { return tensor(name).dtype(); }
  void read(const std::string& name, const Tensor& into) const override;

  std::vector<std::string> optimizer_names() const;
  /// Steps done, samples consumed, schedule and loss scale: progress.json of a checkpoint of ours.
  std::string progress() const;
  /// The recipe that its arguments describe, as far as mappings/arguments/megatron.yaml knows them.
  Value recipe() const;

 private:
  Tensor tensor(const std::string& name) const;
  void take_weights(const PickleNode& model);
  void take_optimizer(const PickleNode& optimizer);
  void take_groups(const PickleNode& groups, const PickleNode& state, const PickleNode* masters);
  [[noreturn]] void refuse(const std::string& story) const;

  std::filesystem::path folder_;
  const Mappings& mappings_;
  std::unique_ptr<TorchFile> file_;
  std::vector<std::string> names_;
  std::map<std::string, const PickleNode*> tensors_;  ///< by our names, optimizer state included
  double updates_ = -1;                               ///< steps the optimizer made; -1: not told
};

/// Our name for Megatron's, by mappings/weights/megatron.yaml; empty for what is no weight.
std::string our_name_of_megatron(const std::string& theirs, const Value& table);

/// Write `tensors` (weights in fp32, "optimizer.<slot>.<weight>") as <root>/iter_0000100/mp_rank_00/model_optim_rng.pt
/// and <root>/latest_checkpointed_iteration.txt, so that torch.load and Megatron-LM (with --no-load-rng: its generators
/// are not ours) take it. `progress` is progress.json, `recipe` the resolved recipe; a `type` of 16 bits makes the
/// weights of that type and the given ones their masters. Returns the folder of the iteration. Throws IoError.
std::filesystem::path save_megatron(const std::filesystem::path& root, std::int64_t iteration,
                                    std::span<const TensorRange> tensors, const std::string& progress,
                                    const Value& recipe, DType type, const Mappings& mappings);

}  // namespace tessera
