#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/interop/mindspeed_mm/mm_folder.h"

namespace tessera::mindspeed_mm {

/// The format of MindSpeed-MM's checkpoints of a Qwen2-VL, of any layout. Only weights are read. Nothing in a folder
/// tells that the vision tower's projections are concatenated, as releases 2.2.0 and 2.3.0 leave them: such a folder
/// has to pass through `tessera checkpoint mm-convert`.
class MmFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "mindspeed_mm"; }
  std::string program() const override { return "mindspeed-mm"; }
  /// The folder of the iteration that the tracker file names, or `folder` itself, if its first rank has tensors of a
  /// Qwen2-VL of MindSpeed-MM.
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::vector<checkpoint::FoundCheckpoint> list(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;
};

/// The weights of a folder of MindSpeed-MM under our names.
class MmCheckpoint final : public checkpoint::OpenedCheckpoint {
 public:
  /// Throws ConfigError as MmFolder does. `folder`: of the ranks.
  MmCheckpoint(const std::filesystem::path& folder, const options::Mappings& mappings);

  /// Takes the model's options and its tokenizer from a folder of Transformers: MindSpeed-MM's checkpoints do not have
  /// them. Throws ConfigError.
  void describe_by(const std::filesystem::path& transformers, const options::Mappings& mappings);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return ours_.count(name) != 0; }
  Shape shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override { return tensor(name).type; }
  void read(const std::string& name, const Tensor& into) const override;

  std::int64_t iteration() const override { return tensors_->iteration(); }
  const checkpoint::Blobs& blobs() const override { return blobs_; }
  options::Value recipe() const override;
  std::vector<std::string> tokenizer_options() const override { return tokenizer_options_; }
  std::string description() const override;
  std::vector<std::string> notes() const override;
  std::uint64_t bytes() const override { return tensors_->file_bytes(); }
  void verify() const override { tensors_->verify(); }

 private:
  const MmTensor& tensor(const std::string& name) const;
  void open(std::optional<bool> tied);

  std::filesystem::path folder_;
  MmTable table_;
  MmLayout layout_;
  std::optional<MmFolder> tensors_;  ///< always set
  checkpoint::Blobs blobs_;
  std::map<std::string, std::string> ours_;  ///< our names: theirs
  std::optional<options::Value> recipe_;
  std::vector<std::string> tokenizer_options_;
};

}  // namespace tessera::mindspeed_mm
