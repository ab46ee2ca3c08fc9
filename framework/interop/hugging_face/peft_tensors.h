#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/peft_names.h"

namespace tessera::hugging_face {

/// The tensors of an adapter of ours under the names and in the layouts of PEFT; see write_peft. In memory.
class PeftTensors {
 public:
  /// `lora_only`: of a fused bias, only the parts of adapted modules are trained. Throws ConfigError that names every
  /// tensor of `trained` that PEFT cannot have.
  PeftTensors(const PeftNames& names, const checkpoint::WeightSource& trained, bool lora_only);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  struct Module {
    std::string ours;  ///< layer or part of one; of fused experts that of the first
    std::int64_t rank = 0;
    /// Transformers 5 has a parameter instead of a linear layer: "model.layers.0.mlp.experts.gate_up_proj",
    /// "model.layers.0.mlp.gate.weight".
    bool parameter = false;
  };
  const std::map<std::string, Module>& modules() const { return modules_; }  ///< by their names
  /// The modules whose weights are trained whole, without the copies of tied tables.
  const std::set<std::string>& saved() const { return saved_; }
  bool transposed() const { return transposed_; }  ///< some adapted weight is [in, out]
  bool tied() const { return tied_; }              ///< a tied table is trained whole

 private:
  struct Kind;
  static const std::vector<Kind>& kinds();
  Tensor read(const std::string& name);
  Tensor room(DType type, const Shape& shape);
  Tensor copy(const std::byte* elements, DType type, const Shape& shape);
  void add(const std::string& name);
  void add_layer(const std::string& ours, const Kind& kind);
  bool add_expert(const std::string& ours, const Kind& kind);
  void fuse(const PeftExperts& experts, const std::string& layer, const Kind& kind);
  void add_parameter(const std::string& name);
  void name_parameters(bool lora_only);

  const PeftNames& names_;
  const checkpoint::WeightSource& trained_;
  std::deque<std::vector<std::byte>> memory_;
  std::map<std::string, Tensor> tensors_, whole_;
  std::map<std::string, Module> modules_;
  std::set<std::string> saved_;
  std::string problems_;
  bool transposed_ = false, tied_ = false;
};

}  // namespace tessera::hugging_face
