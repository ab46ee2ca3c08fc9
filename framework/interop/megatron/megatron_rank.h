#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/interop/megatron/megatron_legacy.h"
#include "framework/interop/megatron/megatron_saved.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/value.h"

namespace tessera::megatron {

/// Position of a rank's weights in the whole model.
struct MegatronPlace {
  std::int64_t stage = 0;
  std::vector<std::int64_t> first_layers;  ///< number of the first layer of each chunk
  std::int64_t expert_rank = 0;            ///< its expert-parallel rank
  std::int64_t stages = 1;
  bool tied = false;       ///< the output layer is tied: after the first chunk of the model, it is a copy
  std::int64_t heads = 0;  ///< attention heads of a tensor-parallel rank; 0: not known
};

/// The files that one rank of Megatron-LM saved with --ckpt-format torch: mp_rank_*/model_optim_rng.pt, and beside it
/// distrib_optim.pt if data-parallel ranks share the optimizer state. Read as data (torch_file.h).
///
/// With expert parallelism, Megatron-LM chains two optimizers, one for experts and one for all other weights, each with
/// its own groups and buffers: then 'optimizer' and distrib_optim.pt are lists. The distrib_optim.pt of a rank has the
/// state of those optimizers that no data-parallel rank before it has; the others are None.
///
/// Models of before Megatron core are read too (megatron_legacy.h): their tensors get core's names and order of rows.
class MegatronRank {
 public:
  /// Opens the rank's folder. Throws ConfigError.
  MegatronRank(const std::filesystem::path& folder, const options::Value& table);

  const torch::PickleNode& root() const { return file_->root(); }
  /// The arguments of the run, and what else is not a tensor; valid as long as this object.
  MegatronSaved saved() const { return {*file_, root()}; }
  const torch::PickleNode* argument(const char* name) const { return saved().argument(name); }
  std::optional<double> number(const torch::PickleNode* node) const { return saved().number(node); }

  std::size_t chunks() const { return chunks_.size(); }
  /// Number of layers of a chunk; the rank numbers them from 0 in every chunk.
  std::int64_t layers(std::size_t chunk) const;

  /// Rows of this rank's embedding; 0: it has none.
  std::int64_t rows_of_vocabulary() const;

  /// Assigns the tensors their names in the whole model. An embedding after the first chunk of the model is a copy
  /// (multi-token prediction has one). Throws ConfigError.
  void place(const MegatronPlace& place);
  /// Our names of the weights of a chunk, in the order of the modules, without copies.
  std::vector<std::string> names(std::size_t chunk) const;

  bool has(const std::string& name) const { return pieces_.count(name) != 0; }
  std::vector<std::string> all_names() const;  ///< also of optimizer state
  /// This rank's shard of a tensor. Valid as long as this object; for one that is stored with its rows in another order
  /// or transposed, until the next call. Throws ConfigError.
  Tensor tensor(const std::string& name) const;
  /// Whether the file has the elements in our order, so that tensor() does not copy them.
  bool has_rows_of_ours(const std::string& name) const;
  Shape shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  std::uint64_t bytes() const { return file_->bytes() + (shared_ ? shared_->bytes() : 0); }  ///< size of its files
  /// Reads the files and verifies every checksum. Throws DamageError.
  void verify() const;
  /// Throws IoError if elements that were read may be wrong, because a file was truncated or its disk failed.
  void require_intact() const;
  double updates() const { return updates_; }  ///< optimizer steps; -1: not saved
  /// The saved optimizers (dicts): those of the list, else the single one.
  std::vector<const torch::PickleNode*> optimizers() const;

 private:
  struct Weight {
    std::string name;  ///< our name; with `experts`, it contains {expert} in place of the number
    const torch::PickleNode* node;
    Shape shape = {};  ///< shape of the tensor in the file
    bool copy = false;
    bool buffer = false;  ///< in the model, but not in the optimizer
    FusedRows rows = FusedRows::by_head;
    std::int64_t experts = 0;  ///< number of experts whose weights are concatenated, each [in, out]; 0: a single weight
    std::int64_t first_expert = 0;              ///< number of the first of these experts
    bool is_input_of_expert() const;            ///< linear_fc1, not linear_fc2
    Shape kept() const;                         ///< shape of one expert in the file
    std::string name_of(std::int64_t e) const;  ///< name of its `e`-th expert
  };
  /// Location of a tensor: a whole tensor of a file, or a range of its elements.
  struct Piece {
    const torch::TorchFile* file;  ///< null: all elements are zero
    const torch::PickleNode* node;
    std::int64_t first = -1;  ///< first element; -1: the whole tensor
    Shape shape = {};         ///< shape in the file
    bool turned = false;      ///< the tensor is the transpose of the stored one
    FusedRows rows = FusedRows::by_head;
  };

  void take_chunk(const torch::PickleNode& model, const options::Value& table);
  Weight weight_of(const std::string& name, const torch::PickleNode& node, const options::Value& table) const;
  void must_know_heads(const Weight& weight) const;
  /// Records the location of `weight`, or of its optimizer state with the name prefix `beginning`: in the tensor
  /// `node`, from element `first` on, or all of it.
  void put(const Weight& weight, const std::string& beginning, const torch::TorchFile& file,
           const torch::PickleNode& node, std::int64_t first = -1);
  void add_state_of_buffers();
  const Piece& piece(const std::string& name) const;
  Tensor turned(const Tensor& kept) const;
  Tensor by_head(const Tensor& kept, FusedRows rows) const;
  /// Which weights an optimizer updates.
  enum class Scope { all, dense, experts };
  static bool is_within(Scope scope, const Weight& weight);
  Scope scope_of(const torch::PickleNode& optimizer) const;
  std::int64_t experts_here() const;  ///< experts of a layer on this rank; 0: unknown from its 'args'
  void number_expert(Weight& weight, std::int64_t expert_rank) const;
  void take_optimizer(const torch::PickleNode& optimizer, Scope scope);
  void take_groups(const torch::PickleNode& groups, const torch::PickleNode& state, const torch::PickleNode* masters,
                   Scope scope);
  std::vector<std::optional<double>> decay_of_groups(const torch::PickleNode& groups) const;
  void take_state(const torch::PickleNode& state, const Weight& weight);
  void take_shared_optimizer(const torch::PickleNode& buffers, Scope scope);
  /// `packed`: as versions before Megatron core laid it out.
  void take_buffer(const torch::PickleNode& buffer, std::size_t chunk, Scope scope, bool packed);
  std::vector<std::int64_t> places_in_buffer(const std::vector<const Weight*>& own, std::size_t chunk) const;
  std::int64_t bucket_size(std::size_t chunk) const;
  std::vector<const Weight*> weights() const;                                ///< weights of all chunks
  std::vector<const Weight*> trained(std::size_t chunk, Scope scope) const;  ///< without buffers
  [[noreturn]] void refuse(const std::string& message) const;

  std::filesystem::path folder_;
  MegatronPlace place_;
  std::unique_ptr<torch::TorchFile> file_, shared_;
  std::vector<std::vector<Weight>> chunks_;
  std::map<std::string, Piece> pieces_;
  double updates_ = -1;
  mutable std::vector<std::byte> turned_;  ///< the last tensor whose elements were put in another order
  mutable std::vector<float> zeros_;       ///< size of the largest buffer
};

}  // namespace tessera::megatron
