#pragma once

#include <cstddef>
#include <cstdint>
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

/// Whether the first rank in `ranks`, a folder with mp_rank_*, has tensors of the table. Throws ConfigError, IoError.
bool has_tensors_of(const std::filesystem::path& ranks, const MmTable& table);
/// The layout that the ranks in `ranks` were saved with, by their folders, chunks and numbers of layers. Throws
/// ConfigError if some are missing; IoError.
MmLayout layout_of_folder(const std::filesystem::path& ranks, const MmTable& table);

/// The model in a checkpoint folder of MindSpeed-MM: release/ or iter_*/, mp_rank_*/model_optim_rng.pt of every rank.
/// Memory-mapped and read as data (torch_file.h); what training adds to the weights is left alone.
class MmFolder final : public MmSource {
 public:
  /// `folder` has latest_checkpointed_iteration.txt, or is one of the folders it names. Throws ConfigError if the
  /// folder was saved with another layout, which the message names, or if tensors are missing, unknown, or differ in
  /// shape between ranks. `tied`: whether the output layer is tied to the embedding; nothing: it is if the folder has
  /// no output layer, or one of the same bytes on another stage. `table` must outlive this.
  MmFolder(const std::filesystem::path& folder, const MmLayout& layout, const MmTable& table,
           std::optional<bool> tied = std::nullopt);

  const MmTensors& tensors() const override { return tensors_; }
  bool is_tied() const override { return tied_; }
  void read(const MmTensor& tensor, std::span<std::byte> into) const override;

  std::int64_t iteration() const;    ///< that training saved; 0: not known
  std::uint64_t file_bytes() const;  ///< size of all files
  void verify() const;               ///< reads everything and verifies every checksum. Throws DamageError

 private:
  struct Held {
    std::size_t stage;
    std::vector<const torch::PickleNode*> nodes;  ///< of each tensor-parallel rank
  };
  const torch::TorchFile& file(std::size_t rank, std::size_t stage) const { return *files_[rank][stage]; }
  void open(const MmLayout& layout);
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
