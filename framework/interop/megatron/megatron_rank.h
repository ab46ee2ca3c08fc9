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

/// Where the weights of a rank are in the whole model.
struct MegatronPlace {
  std::int64_t stage = 0;
  std::vector<std::int64_t> first_layers;  ///< of each chunk
  std::int64_t expert_rank = 0;            ///< its number among the ranks that divide the experts of a layer
  bool tied = false;                       ///< an output layer behind the first chunk of the model is a copy
};

/// What one rank of Megatron-LM saved with --ckpt-format torch: mp_rank_*/model_optim_rng.pt, and beside it
/// distrib_optim.pt when data parallel ranks share the optimizer's state. Read as data (torch_file.h).
///
/// Where ranks divide the experts, Megatron-LM chains two optimizers, for experts and for all other weights, each with
/// its own groups and buffers: then 'optimizer' and distrib_optim.pt are lists. Of distrib_optim.pt a rank has the
/// state of those optimizers that no data-parallel rank before it has; the others are None there.
class MegatronRank {
 public:
  /// `folder` is that rank's. Throws ConfigError.
  MegatronRank(const std::filesystem::path& folder, const options::Value& table);

  const torch::PickleNode& root() const { return file_->root(); }
  /// The arguments of the run: a dict; null when they were not kept.
  const torch::PickleNode* arguments() const;
  /// One of them; null when it was not kept.
  const torch::PickleNode* argument(const char* name) const;
  std::optional<double> number(
      const torch::PickleNode* node) const;  ///< whatever it is kept as; a tensor of one element too

  std::size_t chunks() const { return chunks_.size(); }
  std::int64_t layers(std::size_t chunk) const;  ///< of its own numbering, which begins at 0 in every chunk

  /// Gives the tensors their names in the whole model. An embedding behind the first chunk of the model is a copy
  /// (multi-token prediction has one). Throws ConfigError.
  void place(const MegatronPlace& place);
  /// Our names of the weights of a chunk, in the order of the modules; copies are not among them.
  std::vector<std::string> names(std::size_t chunk) const;

  bool has(const std::string& name) const { return pieces_.count(name) != 0; }
  std::vector<std::string> all_names() const;  ///< optimizer state too
  /// This rank's part. Throws ConfigError. Valid as long as this; of an expert that is kept transposed until the next
  /// call.
  Tensor tensor(const std::string& name) const;
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  std::uint64_t bytes() const { return file_->bytes() + (shared_ ? shared_->bytes() : 0); }  ///< of its files
  /// Reads its files and compares every checksum. Throws DamageError.
  void verify() const;
  double updates() const { return updates_; }  ///< steps the optimizer made; -1: not told
  /// Its optimizers: those of the list, else the one that there is. Dicts.
  std::vector<const torch::PickleNode*> optimizers() const;

 private:
  struct Weight {
    std::string name;  ///< ours; with `experts` the place of their number is {expert}
    const torch::PickleNode* node;
    Shape shape = {};  ///< of the tensor in the file
    bool copy = false;
    bool buffer = false;       ///< part of the model, not of the optimizer
    std::int64_t experts = 0;  ///< 0: one weight; else those of so many experts, one behind the other, each [in, out]
    std::int64_t first_expert = 0;              ///< and the number of the first
    bool is_input_of_expert() const;            ///< linear_fc1, not linear_fc2
    Shape kept() const;                         ///< of one expert in the file
    std::string name_of(std::int64_t e) const;  ///< of the `e`-th of its experts
  };
  /// Where a tensor lies: all of a tensor of a file, or some of its elements.
  struct Piece {
    const torch::TorchFile* file;  ///< null: all elements are zero
    const torch::PickleNode* node;
    std::int64_t first = -1;  ///< -1: all
    Shape shape = {};         ///< there
    bool turned = false;      ///< the transpose of what is there is meant
  };

  void take_chunk(const torch::PickleNode& model, const options::Value& table);
  Weight weight_of(const std::string& name, const torch::PickleNode& node, const options::Value& table) const;
  /// Says where `weight`, or its optimizer state with that beginning of its name, lies: in the tensor `node` from
  /// element `first` on, or all of it.
  void put(const Weight& weight, const std::string& beginning, const torch::TorchFile& file,
           const torch::PickleNode& node, std::int64_t first = -1);
  void add_state_of_buffers();
  const Piece& piece(const std::string& name) const;
  Tensor turned(const Tensor& kept) const;
  /// Which weights an optimizer updates.
  enum class Scope { all, dense, experts };
  static bool is_within(Scope scope, const Weight& weight);
  Scope scope_of(const torch::PickleNode& optimizer) const;
  std::int64_t experts_here() const;  ///< experts of a layer on this rank; 0: its 'args' do not say
  void number_expert(Weight& weight, std::int64_t expert_rank) const;
  void take_optimizer(const torch::PickleNode& optimizer, Scope scope);
  void take_groups(const torch::PickleNode& groups, const torch::PickleNode& state, const torch::PickleNode* masters,
                   Scope scope);
  void take_state(const torch::PickleNode& state, const Weight& weight);
  void take_shared_optimizer(const torch::PickleNode& buffers, Scope scope);
  void take_buffer(const torch::PickleNode& buffer, std::size_t chunk, Scope scope);
  std::int64_t bucket_size(std::size_t chunk) const;
  std::vector<const Weight*> weights() const;                                ///< of all chunks
  std::vector<const Weight*> trained(std::size_t chunk, Scope scope) const;  ///< buffers are not among them
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  std::int64_t stage_ = 0;
  std::unique_ptr<torch::TorchFile> file_, shared_;
  std::vector<std::vector<Weight>> chunks_;
  std::map<std::string, Piece> pieces_;
  double updates_ = -1;
  mutable std::vector<std::byte> turned_;  ///< the last tensor that was transposed
  mutable std::vector<float> zeros_;       ///< as many as the largest buffer has elements
};

}  // namespace tessera::megatron
