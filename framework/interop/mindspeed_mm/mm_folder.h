#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/interop/mindspeed_mm/mm_source.h"
#include "framework/interop/torch/torch_file.h"

namespace tessera::mindspeed_mm {

/// The model in a checkpoint folder of MindSpeed-MM: release/ or iter_*/, mp_rank_*/model_optim_rng.pt of every rank.
/// Memory-mapped and read as data (torch_file.h); what training adds to the weights is left alone.
class MmFolder final : public MmSource {
 public:
  /// `folder` has latest_checkpointed_iteration.txt, or is one of the folders it names. Throws ConfigError if the folder
  /// was saved with another layout, which the message names, or if tensors are missing, unknown, or differ in shape
  /// between ranks. `tied`: whether the output layer is tied to the embedding; nothing: it is if the folder has no output
  /// layer, or one of the same bytes on another stage. `table` must outlive this.
  MmFolder(const std::filesystem::path& folder, const MmLayout& layout, const MmTable& table,
           std::optional<bool> tied = std::nullopt);

  const MmTensors& tensors() const override { return tensors_; }
  bool is_tied() const override { return tied_; }
  void read(const MmTensor& tensor, std::span<std::byte> into) const override;

 private:
  struct Held {
    std::size_t stage;
    std::vector<const torch::PickleNode*> nodes;  ///< of each tensor-parallel rank
  };
  const torch::TorchFile& file(std::size_t rank, std::size_t stage) const { return *files_[rank][stage]; }
  void open(const MmLayout& layout);
  MmLayout found_layout(const MmLayout& expected) const;
  const torch::PickleNode* chunk(std::size_t rank, const MmPlace& place, std::size_t chunks) const;
  void take(const MmLayout& layout, const MmPlace& place);
  void add(const MmTensor& first, Held held);
  void refuse_missing(const MmLayout& layout) const;
  void settle_tie(const MmLayout& layout, std::optional<bool> tied);
  bool has_equal_elements(const std::string& one, const std::string& other) const;
  Tensor header(const Held& held, std::size_t rank, const std::string& name) const;
  std::vector<std::byte> part(const Held& held, std::size_t rank, const std::string& name) const;
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  const MmTable& table_;
  std::vector<std::vector<std::unique_ptr<torch::TorchFile>>> files_;  ///< [tensor-parallel rank][stage]
  MmTensors tensors_;
  std::map<std::string, Held> held_;  ///< by the names of tensors_
  bool tied_ = false;
};

}  // namespace tessera::mindspeed_mm
