#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/registries.h"

namespace tessera::flags {

struct Source;

/// A command line of Megatron-LM, as its rules access it: if a flag is given twice, the last values count.
class AskedFlags {
 public:
  explicit AskedFlags(const std::vector<GivenFlag>& flags);

  bool has(const std::string& flag) const { return given_.count(flag) > 0; }
  bool any(const std::vector<const char*>& flags) const;
  /// The value of `flag`; `otherwise` if it is not given.
  std::string word(const std::string& flag, const std::string& otherwise = "") const;
  std::vector<std::string> words(const std::string& flag) const;
  /// The value of `flag` as a number; `otherwise` if it is not given. Throws NotKnown if the value is not a number,
  /// such as ${NAME}.
  std::int64_t number(const std::string& flag, std::int64_t otherwise) const;
  double real(const std::string& flag, double otherwise) const;
  const GivenFlag* find(const std::string& flag) const;
  struct NotKnown {};

  // Values that several rules use.
  std::int64_t tensor() const { return number("--tensor-model-parallel-size", 1); }
  std::int64_t pipeline() const { return number("--pipeline-model-parallel-size", 1); }
  std::int64_t context() const { return number("--context-parallel-size", 1); }
  std::int64_t experts_cut() const { return number("--expert-model-parallel-size", 1); }
  std::int64_t layers() const { return number("--num-layers", number("--encoder-num-layers", 0)); }
  std::int64_t counted_layers() const;  ///< including embedding and loss if they count as layers
  std::int64_t experts() const { return number("--num-experts", 0); }
  std::string positions() const;
  bool rotary_fusion() const { return positions() == "rope" && !has("--no-rope-fusion"); }
  bool sequence_parallel() const { return has("--sequence-parallel") && tensor() > 1; }
  bool interleaved() const;
  bool distributed_checkpoint() const { return word("--ckpt-format", "torch_dist") != "torch"; }
  std::string recomputation() const;

 private:
  std::map<std::string, GivenFlag> given_;
};

/// A rule of Megatron-LM that no rule of recipes contains, because it follows from Megatron-LM's implementation or
/// concerns a flag without an option: it rejects a command line, never a recipe. docs/rules.md gives the reason.
struct MegatronRule {
  std::string name;                ///< id in docs/rules.md
  std::vector<std::string> flags;  ///< flags that it reads; the error names the first given one
  std::string message;             ///< what is incompatible
  std::string advice;              ///< what to do
  std::function<bool(const AskedFlags& a)> broken;
};

/// All of them. The list lives as long as the program.
const std::vector<MegatronRule>& megatron_rules();

/// Those at which `flags` would stop Megatron-LM. A rule about an unknown value (${NAME}) is not among them.
std::vector<const MegatronRule*> broken_megatron_rules(const std::vector<GivenFlag>& flags);

/// Names of the rules of recipes that Megatron-LM checks as well. The rule of the recipe has the condition and the
/// message; a command line is checked by converting it to a recipe.
const std::vector<std::string>& rules_of_recipes_and_megatron();

/// Origin of a finding about a missing flag.
constexpr const char* no_flag = "the command line";

/// Reports each rule at which Megatron-LM core_v0.12.1 itself would stop before building anything: in the checks of its
/// arguments, of the configuration made from them, or of the size of the first step. These are megatron_rules() and
/// rules_of_recipes_and_megatron(); messages name the flags of `table`. A rule of the first kind is not reported where
/// the recipe's rule of that name is. A rule about an unknown value (${NAME}) is not checked, nor one about the number
/// of ranks if `world` is 0. Source: core_v0.12.1, megatron/training/arguments.py,
/// megatron/core/transformer/transformer_config.py.
void check_megatron_rules(const std::vector<GivenFlag>& flags, std::int64_t world, const FlagTable& table,
                          const recipe::Registries& registries, options::Report& report);

/// The findings of check_megatron_rules() for a script or a list of flags, without rules about the number of ranks.
/// Empty if `source` is for another program than Megatron-LM core_v0.12.1, or if conditions of it are unknown.
std::vector<options::Finding> megatron_stops(const Source& source, const recipe::Registries& registries);

}  // namespace tessera::flags
