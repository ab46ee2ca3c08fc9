#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/model/lora_options.h"
#include "framework/nn/adapter.h"
#include "framework/training/trained_names.h"

namespace tessera::training {

/// Another program's name of one of our modules, or of a part of it.
struct ModuleAlias {
  std::string name;      ///< "model.layers.0.self_attn.q_proj"
  std::size_t part = 0;  ///< of a fused module, counted from 1; 0: the whole module
  /// It is a parameter there, of all experts of a layer: "model.layers.0.mlp.experts.gate_up_proj".
  bool parameter = false;
};
/// The aliases of a module of ours, by its full name.
using ModuleAliases = std::function<std::vector<ModuleAlias>(const std::string& module)>;

/// Whether a module of ours is the embedding of words or the output layer.
bool is_of_vocabulary(const std::string& module);

/// Which layers lora_config gives adapters, and what is trained beside them. The same on every rank and layout.
class LoraPlan final : public nn::AdapterPlan {
 public:
  /// Throws ConfigError, naming the option, for a pattern that cannot be read.
  LoraPlan(const model::LoraOptions& options, ModuleAliases aliases);

  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                           std::span<const nn::LinearPart> parts) const override;

  /// A layer, or a part of a fused one, that can have an adapter.
  struct Candidate {
    std::optional<nn::LinearPart> part;        ///< nothing: the whole layer
    std::vector<std::string> names;            ///< ours, then those of other programs
    std::vector<std::string> parameters = {};  ///< of which it is a part in other programs: see ModuleAlias
    bool gate_and_up = false;                  ///< of an expert, together
  };
  /// All candidates of a layer: the whole, then its parts.
  std::vector<Candidate> candidates(const std::string& module, std::span<const nn::LinearPart> parts) const;
  /// Those that get adapters. If both a fused layer and its parts are named: the parts, unless our name of the layer
  /// is.
  std::vector<Candidate> chosen(const std::string& module, std::span<const nn::LinearPart> parts) const;

  /// Whether `target`, of target_parameters, names the weight of the candidate.
  static bool names_parameter(const std::string& target, const Candidate& candidate);
  /// The texts of target_cells or target_modules, as given.
  const std::vector<std::string>& targets() const { return targets_; }
  /// Whether the target with that index names the candidate.
  bool names(std::size_t target, const Candidate& candidate) const;
  /// Whether modules_to_save or the name `module` of it names the module of `parameter`.
  bool saves(const std::string& parameter) const;
  bool saves(const std::string& module, const std::string& parameter) const;
  const model::LoraOptions& options() const { return o_; }

 private:
  struct Size {
    std::int64_t rank, alpha;
  };
  std::optional<Size> target_size_of(const Candidate& candidate) const;
  std::optional<Size> size_of(const Candidate& candidate) const;
  bool excluded(const std::string& module, const Candidate& candidate) const;
  std::int64_t by_pattern(const std::vector<std::pair<NamePattern, std::int64_t>>& patterns, const Candidate& candidate,
                          std::int64_t otherwise) const;

  model::LoraOptions o_;
  ModuleAliases aliases_;
  std::vector<std::string> targets_;
  std::vector<NamePattern> patterns_;  ///< of targets_, if they are patterns
  std::vector<Size> sizes_;            ///< of targets_
  bool all_linear_ = false;
  std::optional<NamePattern> excluded_;
  std::vector<std::pair<NamePattern, std::int64_t>> ranks_, alphas_;
};

}  // namespace tessera::training
