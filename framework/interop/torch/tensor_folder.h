#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/named_tensors.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/torch/dcp_folder.h"
#include "framework/tensor/box.h"

// Models of which several processes of torch have each saved a part.

namespace tessera::torch {

/// The tensors of a folder that torch.distributed.checkpoint.save has written: .metadata and *.distcp. Chunks of
/// DTensors may be uneven or empty.
class DcpTensors final : public checkpoint::NamedTensors {
 public:
  /// Throws as DcpFolder.
  explicit DcpTensors(const std::filesystem::path& folder);
  /// From now on only tensors whose keys begin with `prefix` are there, without it: "model." of a state dict in
  /// another. Optimizer state of these tensors, "optimizer.state.<name>.<word>" as torch's get_optimizer_state_dict
  /// names it, is kept for state(). Throws ConfigError if two keys are the same state.
  void take_below(const std::string& prefix);
  /// The words of the optimizer state: "exp_avg", "step".
  std::vector<std::string> state_words() const;
  /// The state of one word under the names of the tensors to which it belongs. It keeps the files open by itself.
  std::unique_ptr<DcpTensors> state(const std::string& word) const;

  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  const Shape& shape(const std::string& name) const override { return stored(name).size; }
  DType dtype(const std::string& name) const override { return stored(name).type; }
  checkpoint::WholeTensor whole(const std::string& name) const override;
  std::optional<checkpoint::MappedTensor> mapped_whole(const std::string&) const override { return std::nullopt; }
  bool reads_boxes() const override { return true; }
  void read_box(const std::string& name, const Box& box, const Tensor& into) const override;
  /// Of the tensors that take_below() took away and that are no state: their number, and the first.
  std::vector<std::string> notes() const override;
  /// whole() has verified the checksums of what it gave.
  void require_intact() const override {}
  bool verify() const override;
  std::string form() const override { return "of torch.distributed.checkpoint"; }

 private:
  const DcpTensor& stored(const std::string& name) const;

  using Tensors = std::map<std::string, const DcpTensor*>;

  std::filesystem::path path_;
  std::shared_ptr<const DcpFolder> folder_;
  Tensors tensors_;
  std::map<std::string, Tensors> states_;              ///< by word, then by name
  std::pair<std::string, std::size_t> left_out_ = {};  ///< by take_below(): the first, and their number
};

/// The tensors of a folder that HuggingFaceStorageWriter of torch.distributed.checkpoint has written with
/// save_distributed: safetensors files of each process, of which the metadata DCP_SHARDING_INFO says where in its
/// tensor each part begins. Source: torch/distributed/checkpoint/hf_storage.py of torch 2.8.
class PartedSafetensors final : public checkpoint::NamedTensors {
 public:
  /// Whether `folder` is such a folder.
  static bool is_here(const std::filesystem::path& folder);
  /// Throws ConfigError, naming file and tensor, if a file is missing or has no such metadata, and if the parts do not
  /// have each element of their tensor once.
  explicit PartedSafetensors(const std::filesystem::path& folder);

  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  const Shape& shape(const std::string& name) const override { return stored(name).shape; }
  DType dtype(const std::string& name) const override { return stored(name).type; }
  checkpoint::WholeTensor whole(const std::string& name) const override;
  std::optional<checkpoint::MappedTensor> mapped_whole(const std::string& name) const override;
  bool reads_boxes() const override { return true; }
  void read_box(const std::string& name, const Box& box, const Tensor& into) const override;
  void require_intact() const override;
  std::string form() const override { return "of several processes of torch.distributed.checkpoint"; }

 private:
  struct Part {
    std::size_t file;
    Box box;
  };
  struct Parted {
    DType type = DType::float32;
    Shape shape;
    std::vector<Part> parts;
  };
  void add_file(const std::filesystem::path& file);
  void finish(const std::string& name, Parted& tensor) const;
  const Parted& stored(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<checkpoint::SafetensorsReader> files_;
  std::map<std::string, Parted> tensors_;
};

/// The tensors in `folder`, in one of these forms or in safetensors files with whole tensors. Throws as their
/// constructors.
std::unique_ptr<checkpoint::NamedTensors> open_tensor_folder(const std::filesystem::path& folder);

/// Whether `folder` was written by torch.distributed.checkpoint and not by Megatron-LM.
bool is_plain_dcp(const std::filesystem::path& folder);

}  // namespace tessera::torch
