#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/peft_config.h"
#include "framework/interop/hugging_face/peft_names.h"

namespace tessera::hugging_face {

/// Names and shapes of the weights of a base model.
using WeightShapes = std::map<std::string, Shape>;

/// An adapter folder of PEFT (adapter_config.json, adapter_model.safetensors), accessed with our names and layouts:
///
///   <linear layer>[.<part>].lora_A.weight       [rank, in]
///   <linear layer>[.<part>].lora_B.weight       [out, rank]  rows in the order of our weight
///   <linear layer>[.<part>].lora_magnitude.weight  [out]     DoRA
///   <parameter>                                 modules_to_save and biases, trained whole
///
/// An adapter on the fused experts of Transformers 5 becomes one per expert. The folder's tensors are in memory, with
/// their types.
class PeftAdapter final : public checkpoint::WeightSource {
 public:
  /// Opens the folder for a base with the weights `base`. Throws ConfigError as read_peft_config does, and, by name,
  /// for tensors that belong to no weight of the base or do not have its shape, a factor without the other, factors of
  /// different rank, elements that are not finite, an adapter of zeros only, and a damaged file.
  PeftAdapter(const std::filesystem::path& folder, WeightTable table, const WeightShapes& base,
              const options::Mappings& mappings);

  const PeftConfig& config() const { return config_; }
  /// The names of the folder's tensors that are copies of the base, and were ignored.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Whether it has factors only, of which one of each layer is zero: the model computes what its base does.
  bool changes_nothing() const;

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override;  ///< sorted
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  Shape shape(const std::string& name) const override { return kept(name).shape; }
  DType dtype(const std::string& name) const override { return kept(name).type; }
  /// Of a fused bias of which the folder has some parts, only their rows are written.
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const checkpoint::TensorRange& into) const override;

 private:
  struct Stored {
    Shape shape;
    DType type = DType::float32;
    std::vector<std::byte> elements;
    /// For a fused parameter with missing parts: whether each row is here; empty: all are.
    std::vector<bool> rows = {};
    Tensor tensor() const;
  };
  /// The parts of a parameter that were found, in the order of row->from.
  struct Parts {
    const WeightRow* row;
    std::vector<std::string> tensors;  ///< empty: missing
  };

  const Stored& kept(const std::string& name) const;
  void add(const std::string& given);
  void add_factor(const std::string& given, const std::string& module, const std::string& factor);
  void add_experts(const std::string& given, const PeftExperts& experts, bool gate_up, const std::string& factor);
  void add_parameter(const std::string& given, const std::string& name);
  void join_parameters(const WeightShapes& base);
  void keep(const std::string& ours, const Tensor& elements);
  void check_copies();
  void check_factors(const WeightShapes& base);
  void check_pair(const std::string& ours, const WeightShapes& base);
  void refuse_zeros() const;
  void problem(const std::string& what) { problems_.push_back(what); }
  [[noreturn]] void refuse_problems() const;

  std::filesystem::path folder_;
  PeftConfig config_;
  checkpoint::SafetensorsReader files_;
  PeftNames names_;
  std::map<std::string, Stored> tensors_;
  std::map<std::string, Parts> parameters_;
  std::map<std::string, std::string> copies_;  ///< tied tables: tensor of the folder -> name of theirs that it copies
  std::vector<std::string> ignored_, problems_;
};

}  // namespace tessera::hugging_face
