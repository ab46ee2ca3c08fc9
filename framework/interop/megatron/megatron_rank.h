#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/value.h"

namespace tessera::megatron {

/// What one rank of Megatron-LM saved with --ckpt-format torch: mp_rank_*/model_optim_rng.pt, and beside it
/// distrib_optim.pt when data parallel ranks share the optimizer's state. Read as data (torch_file.h).
class MegatronRank {
 public:
  /// `folder` is that rank's, `stage` its place in the pipeline. Throws ConfigError.
  MegatronRank(const std::filesystem::path& folder, std::int64_t stage, const options::Value& table);

  const torch::PickleNode& root() const { return file_->root(); }
  /// The arguments of the run: a dict; null when they were not kept.
  const torch::PickleNode* arguments() const;
  /// One of them; null when it was not kept.
  const torch::PickleNode* argument(const char* name) const;
  std::optional<double> number(
      const torch::PickleNode* node) const;  ///< whatever it is kept as; a tensor of one element too

  std::size_t chunks() const { return chunks_.size(); }
  std::int64_t layers(std::size_t chunk) const;  ///< of its own numbering, which begins at 0 in every chunk

  /// Say where its layers stand in the whole model: then tensors have their global names. `tied`: an output layer
  /// beside which there is no embedding is a copy of it.
  void place(const std::vector<std::int64_t>& first_layers, bool tied);
  /// Our names of the weights of a chunk, in the order of the modules; copies are not among them.
  std::vector<std::string> names(std::size_t chunk) const;

  bool has(const std::string& name) const { return pieces_.count(name) != 0; }
  std::vector<std::string> all_names() const;  ///< optimizer state too
  /// This rank's part. Throws ConfigError. Valid as long as this.
  Tensor tensor(const std::string& name) const;
  std::uint64_t bytes() const { return file_->bytes() + (shared_ ? shared_->bytes() : 0); }  ///< of its files
  /// Reads its files and compares every checksum. Throws DamageError.
  void verify() const;
  double updates() const { return updates_; }  ///< steps the optimizer made; -1: not told

 private:
  struct Weight {
    std::string name;  ///< ours
    const torch::PickleNode* node;
    bool copy = false;
  };
  /// Where a tensor lies: all of a tensor of a file, or some of its elements.
  struct Piece {
    const torch::TorchFile* file;
    const torch::PickleNode* node;
    std::int64_t first = -1;  ///< -1: all
    Shape shape = {};
  };

  void take_chunk(const torch::PickleNode& model, const options::Value& table);
  void take_optimizer();
  void take_groups(const torch::PickleNode& groups, const torch::PickleNode& state, const torch::PickleNode* masters);
  void take_state(const torch::PickleNode& state, const Weight& weight);
  void take_shared_optimizer();
  void take_buffer(const torch::PickleNode& buffer, std::size_t chunk);
  std::int64_t bucket_size(std::size_t chunk) const;
  std::vector<const Weight*> weights() const;
  [[noreturn]] void refuse(const std::string& story) const;

  std::filesystem::path folder_;
  std::int64_t stage_;
  std::unique_ptr<torch::TorchFile> file_, shared_;
  std::vector<std::vector<Weight>> chunks_;
  std::map<std::string, Piece> pieces_;
  double updates_ = -1;
};

}  // namespace tessera::megatron
