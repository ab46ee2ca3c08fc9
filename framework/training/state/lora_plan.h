#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/model/lora_options.h"
#include "framework/nn/adapter.h"
#include "framework/training/state/trained_names.h"

namespace tessera::training {

/// Another program's name of one of our modules, or of a part of it.
struct ModuleAlias {
  std::string name;      ///< "model.layers.0.self_attn.q_proj"
  std::size_t part = 0;  ///< of a fused module, counted from 1; 0: the whole module
  /// It is a parameter there, of all experts of a layer: "model.layers.0.mlp.experts.gate_up_proj".
  bool parameter = false;
  bool own = false;  ///< in the program that the model is known to; others only have a module like it
};
/// The aliases of a module of ours, by its full name.
using ModuleAliases = std::function<std::vector<ModuleAlias>(const std::string& module)>;
/// The modules of the whole model that have a weight, by their full names.
using ModuleList = std::function<std::vector<std::string>()>;

/// Whether a module of ours is the embedding of words or the output layer.
bool is_of_vocabulary(const std::string& module);

/// Which layers lora_config gives adapters, and what is trained beside them. The same on every rank and layout.
///
/// A name or pattern that names some module of the model as the model's own program does (ModuleAlias::own) means
/// those names alone: down_proj is no layer of a tower whose layers that program calls fc1 and fc2, although another
/// one calls them so. Every other name or pattern may be that of any program.
class LoraPlan final : public nn::AdapterPlan {
 public:
  /// Asks for modules when it is first used, and once for the aliases of each. Throws ConfigError, naming the option,
  /// for a pattern that cannot be read.
  LoraPlan(const model::LoraOptions& options, ModuleAliases aliases, ModuleList modules);

  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                           std::span<const nn::LinearPart> parts) const override;

  /// A layer, or a part of a fused one, that can have an adapter.
  struct Candidate {
    std::optional<nn::LinearPart> part = {};   ///< nothing: the whole layer
    std::vector<std::string> names = {};       ///< ours, then those of other programs
    std::vector<std::string> own = {};         ///< of these, those in the model's own program
    std::vector<std::string> parameters = {};  ///< of which it is a part in other programs: see ModuleAlias
    bool linear = false;                       ///< all-linear means it: a layer of its own in the model's program
    bool gate_and_up = false;                  ///< of an expert, together
  };
  /// All candidates of a layer: the whole, then its parts.
  std::vector<Candidate> candidates(const std::string& module, std::span<const nn::LinearPart> parts) const;
  /// Whether exclude_modules or layers_to_transform leave out the candidate `one` of `all` those of a layer.
  bool excluded(const std::string& module, const Candidate& one, std::span<const Candidate> all) const;
  /// Those that get adapters. If both a fused layer and its parts are named: the parts, unless our name of the layer
  /// is.
  std::vector<Candidate> chosen(const std::string& module, std::span<const nn::LinearPart> parts) const;

  /// Whether `target`, of target_parameters, names the weight of the candidate.
  static bool names_parameter(const std::string& target, const Candidate& candidate);
  /// The texts of target_cells or target_modules, as given.
  const std::vector<std::string>& targets() const { return targets_; }
  bool is_all_linear() const { return all_linear_; }
  /// Whether the target with that index names the candidate.
  bool names(std::size_t target, const Candidate& candidate) const;
  /// Whether exclude_modules[item], or the one pattern that it is, names the candidate.
  bool excludes(std::size_t item, const Candidate& candidate) const;
  /// The patterns of rank_pattern and alpha_pattern that name none of `chosen`: "rank_pattern: 'k_proj'".
  std::vector<std::string> unused_patterns(const std::vector<Candidate>& chosen) const;
  /// Whether modules_to_save or the name `module` of it names the module of `parameter`.
  bool saves(const std::string& parameter) const;
  bool saves(const std::string& module, const std::string& parameter) const;
  const model::LoraOptions& options() const { return o_; }

 private:
  struct Size {
    std::int64_t rank, alpha;
  };
  /// A name or pattern of the options.
  struct Wanted {
    std::string end;                          ///< what a name is, or ends with after a dot
    std::optional<NamePattern> pattern = {};  ///< if given: what the whole name must match instead
    bool own = false;                         ///< it means names of the model's own program
    bool is_in(const std::vector<std::string>& names) const;
  };
  using NumbersOf = std::vector<std::pair<Wanted, std::int64_t>>;
  std::optional<Size> target_size_of(const Candidate& candidate) const;
  std::optional<Size> size_of(const Candidate& candidate) const;
  bool is_left_out(const std::string& module, const Candidate& candidate) const;
  bool matches_size(const Wanted& wanted, const Candidate& candidate) const;
  std::int64_t by_pattern(const NumbersOf& patterns, const Candidate& candidate, std::int64_t otherwise) const;
  bool matches(const Wanted& wanted, const Candidate& candidate) const;
  void find_own() const;
  const std::vector<ModuleAlias>& aliases_of(const std::string& module) const;

  model::LoraOptions o_;
  ModuleAliases aliases_;
  ModuleList modules_;
  std::vector<std::string> targets_;
  std::vector<Size> sizes_;  ///< of targets_
  bool all_linear_ = false;
  mutable std::mutex asking_;
  mutable std::map<std::string, std::vector<ModuleAlias>> found_aliases_;  ///< by module
  mutable std::once_flag own_found_;
  mutable std::vector<Wanted> wanted_, excluded_;  ///< of targets_, of exclude_modules
  mutable NumbersOf ranks_, alphas_;
};

}  // namespace tessera::training
