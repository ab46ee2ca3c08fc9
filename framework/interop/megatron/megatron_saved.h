#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/mappings.h"
#include "framework/options/value.h"

namespace tessera::megatron {

/// What Megatron-LM saves beside the tensors, in every checkpoint format: a dict with the arguments of the run, the
/// iteration and the state of the schedules. A view: file and root must outlive it.
class MegatronSaved {
 public:
  /// `root`: a dict in `file`.
  MegatronSaved(const torch::TorchFile& file, const torch::PickleNode& root) : file_(&file), root_(&root) {}

  const torch::PickleNode& root() const { return *root_; }
  /// The arguments of the run, a dict; null if they were not saved.
  const torch::PickleNode* arguments() const;
  /// One of the arguments; null if it was not saved.
  const torch::PickleNode* argument(const char* name) const;
  /// An argument that is a number; `otherwise` if it is none, or was not saved.
  std::int64_t count(const char* name, std::int64_t otherwise) const;
  /// An argument that is a text; nothing if it is None, or was not saved. Throws ConfigError if it is something else.
  std::optional<std::string> words(const char* name) const;
  /// Whether an argument is True.
  bool flag(const char* name) const;
  /// Whether the output layer is tied to the embedding.
  bool is_tied() const;
  /// The value of a node as a number, for any numeric type, also a tensor with one element; nothing for other nodes.
  std::optional<double> number(const torch::PickleNode* node) const;

  /// Elements after which a bucket of the distributed optimizer was full, as the arguments say; 0: there was one
  /// bucket. `first`: of the first chunk of the model; `elements`: of all trained weights of the rank.
  std::int64_t bucket_size(bool first, std::int64_t elements) const;

  std::int64_t iteration() const;
  /// `updates`: optimizer steps; below 0: not saved. Throws ConfigError if a field of the saved schedule is missing.
  checkpoint::Progress progress(double updates, const std::optional<checkpoint::LossScaleState>& scale) const;
  /// The state of a loss scaler, a dict; nothing if it is none, or null.
  std::optional<checkpoint::LossScaleState> loss_scale(const torch::PickleNode* scaler) const;
  /// The recipe that the arguments describe, as far as mappings/arguments/megatron.yaml has rows for them. Throws
  /// ConfigError if they were not saved.
  options::Value recipe(const options::Mappings& mappings) const;
  /// As checkpoint::OpenedCheckpoint::parallel_sizes().
  std::map<std::string, std::int64_t> parallel_sizes() const;

 private:
  const torch::TorchFile* file_;
  const torch::PickleNode* root_;
};

}  // namespace tessera::megatron
