#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/kernels/threads.h"
#include "framework/training/model_state.h"
#include "framework/training/training_setup.h"

namespace tessera::golden {

/// Values by the names that golden cases use.
using Values = std::map<std::string, std::vector<double>>;

std::vector<double> doubles_of(std::span<const float> floats);

/// The files that a case consists of.
struct CaseFiles {
  std::filesystem::path hf;         ///< folder of Hugging Face Transformers: config.json, weights
  std::filesystem::path batches;    ///< batch.safetensors
  std::filesystem::path arguments;  ///< arguments.json of Megatron-LM; may be absent
  nlohmann::json facts;             ///< of the whole case

  /// Those of a model case: all in one folder, with case.json.
  static CaseFiles of_model(const std::filesystem::path& folder);
};

/// Options of a recipe by their paths, "training_config.trainable_parameters[0]".
using CaseOptions = std::map<std::string, nlohmann::json>;

/// A case's model, built as `tessera train` builds it from a recipe, with the case's weights and batches.
class ModelOfCase {
 public:
  /// `curve` is one of the case's curve*.json with the hyper-parameters; with "bf16": true in it the model is trained
  /// in bfloat16. `more`: further options, which override those of the files.
  ModelOfCase(const CaseFiles& files, const options::Mappings& mappings, const nlohmann::json& curve,
              const CaseOptions& more = {});

  /// What the first batch gives with the weights as they are: logits, token_loss, loss, hidden.*, grad.<their name>,
  /// grad_norm; with experts router_logits.<n> of the n-th layer that has some, and aux_loss of these layers.
  Values first_batch();
  /// What the first step gives with the weights as they are, in micro-batches as training runs it: loss, grad_norm,
  /// grad.<their name> of the trained parameters; of all its samples: logits, token_loss.
  Values first_step();
  /// Tensors, by their names, that have no gradient: biases of experts.
  std::set<std::string> without_gradient() const;

  struct Curve {
    std::vector<double> loss, grad_norm;
    double loss_of_first_batch_after = 0;
  };
  /// All steps, one batch each.
  Curve train();
  /// The weights as they are, under their names and in their layout.
  Values weights() const;
  /// Only the trained ones.
  Values trained_weights() const;

 private:
  void add_theirs(const std::string& prefix, const std::string& name, std::span<const float> elements,
                  Values& out) const;
  void load();
  Values values_of(const std::vector<checkpoint::TensorRange>& ranges) const;

  hugging_face::HuggingFaceModel theirs_;
  kernels::Threads threads_;
  training::TrainingSetup setup_;
  std::unique_ptr<training::ModelState> state_;
};

}  // namespace tessera::golden
