#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/peft_names.h"
#include "framework/kernels/threads.h"
#include "framework/recipe/recipe.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/state/model_state.h"

namespace tessera::golden {

/// Values by the names that golden cases use.
using Values = std::map<std::string, std::vector<double>>;

std::vector<double> doubles_of(std::span<const float> floats);
/// The text as a pattern that matches only it.
std::string pattern_of(const std::string& name);

/// The files that a case consists of.
struct CaseFiles {
  std::filesystem::path hf;            ///< folder of Hugging Face Transformers: config.json, weights
  std::filesystem::path batches;       ///< batch.safetensors
  std::filesystem::path arguments;     ///< arguments.json of Megatron-LM; may be absent
  nlohmann::json facts;                ///< of the whole case
  std::filesystem::path pairs = {};    ///< pairs.safetensors, instead of batches; empty: none
  std::filesystem::path adapter = {};  ///< folder of PEFT where training starts; empty: none
  bool rounds_base = false;            ///< weights of `hf` are rounded to bfloat16 first

  /// Those of a model case: all in one folder, with case.json.
  static CaseFiles of_model(const std::filesystem::path& folder);
};

/// Options of a case that the program refuses, by the recipe's report.
class RefusedOptions : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Options of a recipe by their paths, "training_config.trainable_parameters[0]".
using CaseOptions = std::map<std::string, nlohmann::json>;

/// A case's model, built as `tessera train` builds it from a recipe, with the case's weights and batches.
class ModelOfCase {
 public:
  /// `curve` is one of the case's curve*.json with the hyper-parameters; with "bf16": true in it the model is trained
  /// in bfloat16. `more`: further options, which override those of the files. Throws RefusedOptions if all problems of
  /// the recipe are about lora_config.
  ModelOfCase(const CaseFiles& files, const options::Mappings& mappings, const nlohmann::json& curve,
              const CaseOptions& more = {});

  /// What the first batch gives with the weights as they are: logits, token_loss, loss, hidden.*, grad.<their name>,
  /// grad_norm; with experts router_logits.<n> of the n-th layer that has some, and aux_loss of these layers.
  Values first_batch();
  /// What the first step gives with the weights as they are, in micro-batches as training runs it: loss, grad_norm,
  /// grad.<their name> of the trained parameters; of all its samples: logits, token_loss.
  Values first_step();
  /// What the first step of a case of pairs gives: loss, grad_norm, grad.<their name>; for each pair chosen_logps and
  /// rejected_logps, or with a score head `rewards`, those of the chosen first; with a reference model ref_chosen_logps
  /// and ref_rejected_logps.
  Values first_pairs();
  /// Tensors, by their names, that have no gradient: biases of experts.
  std::set<std::string> without_gradient() const;

  struct Curve {
    std::vector<double> loss, grad_norm;
    double loss_of_first_batch_after = 0;
    std::map<std::string, std::vector<double>> metrics = {};  ///< of the objective, by their names
  };
  /// All steps, one batch each.
  Curve train();
  /// The weights as they are, under their names and in their layout.
  Values weights() const;
  /// The largest change since the start of an element of the tensor with this name of theirs.
  double largest_move(const std::string& theirs) const;
  /// The tables by which our tensors get their names.
  const hugging_face::WeightTable& table() const { return theirs_.table(); }
  /// Only the trained ones.
  Values trained_weights() const;

 private:
  void add_theirs(const std::string& prefix, const std::string& name, std::span<const float> elements,
                  Values& out) const;
  /// The same for all trained tensors, by our names; in a case with an adapter under the names of PEFT.
  void add_trained(const std::string& prefix, const std::map<std::string, Tensor>& ours, Values& out) const;
  void add_step(Values& out);
  void load(bool rounds_base);
  Values values_of(const std::vector<checkpoint::TensorRange>& ranges) const;

  std::filesystem::path batches_;
  hugging_face::HuggingFaceModel theirs_;
  kernels::Threads threads_;
  recipe::Recipe recipe_;
  training::TrainingSetup setup_;
  std::unique_ptr<training::ModelState> state_;
  std::unique_ptr<hugging_face::PeftNames> peft_;  ///< null: no adapter
};

}  // namespace tessera::golden
