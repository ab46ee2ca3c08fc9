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

/// A case's model, built as `tessera train` builds it from a recipe, with the case's weights and batches.
class ModelOfCase {
 public:
  /// `curve` is one of the case's curve*.json with the hyper-parameters; with "bf16": true in it the model is trained
  /// in bfloat16.
  ModelOfCase(const std::filesystem::path& folder, const options::Mappings& mappings, const nlohmann::json& curve);

  /// What the first batch gives with the weights as they are: logits, token_loss, loss, hidden.*, grad.<their name>,
  /// grad_norm; with experts router_logits.<n> of the n-th layer that has some, and aux_loss of these layers.
  Values first_batch();
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

 private:
  void add_theirs(const std::string& prefix, const std::string& name, std::span<const float> elements,
                  Values& out) const;
  void load();

  hugging_face::HuggingFaceModel theirs_;
  kernels::Threads threads_;
  training::TrainingSetup setup_;
  std::unique_ptr<training::ModelState> state_;
};

}  // namespace tessera::golden
