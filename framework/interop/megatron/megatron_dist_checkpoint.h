#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/interop/megatron/megatron_dist_weights.h"
#include "framework/interop/megatron/megatron_saved.h"
#include "framework/interop/torch/dcp_folder.h"
#include "framework/options/mappings.h"

namespace tessera::megatron {

/// A checkpoint of Megatron-LM, --ckpt-format torch_dist, of any number of ranks of any kind: which ranks saved it
/// makes no difference, except for optimizer state that is stored in buffers (megatron_dist_buffers.h). Read as data,
/// without executing code, in place: files are mapped, and only the boxes that are asked for are read.
///
/// `read` and the other functions accept whole weights by our names, and optimizer state as
/// "optimizer.<state>.<weight>"; for a weight with an fp32 master weight, they return the master weight.
class MegatronDistCheckpoint final : public checkpoint::OpenedCheckpoint {
 public:
  /// `folder`: a result of MegatronDistFormat::find. Throws ConfigError, naming file and key, for a save that did not
  /// end, and as DcpFolder and DistWeights do.
  MegatronDistCheckpoint(const std::filesystem::path& folder, const options::Mappings& mappings);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return weights_.weights(); }
  bool has(const std::string& name) const override { return weights_.has(name); }
  Shape shape(const std::string& name) const override { return weights_.tensor(name).shape; }
  DType dtype(const std::string& name) const override { return weights_.tensor(name).type; }
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const checkpoint::TensorRange& into) const override;
  bool reads_rows(const std::string&) const override { return true; }

  std::vector<std::string> optimizer_names() const override;
  std::int64_t iteration() const override { return saved_.iteration(); }
  const checkpoint::Blobs& blobs() const override { return blobs_; }
  std::string description() const override;
  std::uint64_t bytes() const override;
  /// Reads everything: verifies the CRC-32 of every entry of every item. Throws DamageError naming the file.
  void verify() const override;
  std::optional<checkpoint::Progress> progress() const override;
  options::Value recipe() const override { return saved_.recipe(mappings_); }
  std::map<std::string, std::int64_t> parallel_sizes() const override { return saved_.parallel_sizes(); }

 private:
  std::unique_ptr<torch::TorchFile> open_common() const;
  const torch::DcpFolder& files_of_known_order() const;
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  checkpoint::Blobs blobs_;
  options::Mappings mappings_;
  options::Value table_;
  torch::DcpFolder files_;
  std::unique_ptr<torch::TorchFile> common_;
  MegatronSaved saved_;
  DistWeights weights_;
  std::vector<std::unique_ptr<torch::TorchFile>> buffers_;  ///< objects that `weights_` refers to
};

}  // namespace tessera::megatron
