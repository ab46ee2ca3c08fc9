#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// A command line of Megatron-LM, as its rules access it: if a flag is given twice, the last values count.
class AskedFlags {
 public:
  /// `world`: number of ranks; 0: unknown.
  AskedFlags(const std::vector<GivenFlag>& flags, std::int64_t world);

  bool has(const std::string& flag) const { return given_.count(flag) > 0; }
  bool any(const std::vector<const char*>& flags) const;
  /// The value of `flag`; `otherwise` if it is not given.
  std::string word(const std::string& flag, const std::string& otherwise = "") const;
  std::vector<std::string> words(const std::string& flag) const;
  /// The value of `flag` as a number; `otherwise` if it is not given. Throws NotKnown if the value is not a number,
  /// such as ${NAME}.
  std::int64_t number(const std::string& flag, std::int64_t otherwise) const;
  /// All values of `flag` as numbers; throws NotKnown if one is not a number.
  std::vector<std::int64_t> numbers(const std::string& flag) const;
  double real(const std::string& flag, double otherwise) const;
  const GivenFlag* find(const std::string& flag) const;
  std::int64_t world() const;  ///< throws NotKnown if unknown
  struct NotKnown {};

  // Values that several rules use.
  std::int64_t tensor() const { return number("--tensor-model-parallel-size", 1); }
  std::int64_t pipeline() const { return number("--pipeline-model-parallel-size", 1); }
  std::int64_t context() const { return number("--context-parallel-size", 1); }
  std::int64_t experts_cut() const { return number("--expert-model-parallel-size", 1); }
  std::int64_t replicas() const;
  std::int64_t layers() const { return number("--num-layers", number("--encoder-num-layers", 0)); }
  std::int64_t counted_layers() const;  ///< including embedding and loss if they count as layers
  std::int64_t experts() const { return number("--num-experts", 0); }
  std::string positions() const;
  bool rotary_fusion() const { return positions() == "rope" && !has("--no-rope-fusion"); }
  bool sequence_parallel() const { return has("--sequence-parallel") && tensor() > 1; }
  bool interleaved() const;
  bool distributed_checkpoint() const { return word("--ckpt-format", "torch_dist") != "torch"; }
  std::string recomputation() const;
  bool shares_weights() const { return has("--use-torch-fsdp2") || has("--use-custom-fsdp"); }

 private:
  std::map<std::string, GivenFlag> given_;
  std::int64_t world_;
};

/// A rule of Megatron-LM that follows from its implementation and does not apply to Tessera: it rejects a command line,
/// never a recipe.
struct MegatronRule {
  const char* name;                ///< id in docs/rules.md
  std::vector<const char*> flags;  ///< flags that it reads; the error names the first given one
  bool (*broken)(const AskedFlags& a);
  const char* message;  ///< what is incompatible
  const char* advice;   ///< what to do
};

/// All rules. The list lives as long as the program.
const std::vector<MegatronRule>& megatron_rules();

/// Origin of a finding about a missing flag.
constexpr const char* no_flag = "the command line";

/// Reports each rule at which Megatron-LM core_v0.12.1 itself would stop before building anything: in the checks of its
/// arguments, of the configuration made from them, or of the size of the first step. A rule about an unknown value
/// (${NAME}) is not checked, nor a rule about the number of ranks if `world` is 0. Rules that also apply to recipes are
/// in recipe/rules.h. Source: core_v0.12.1, megatron/training/arguments.py,
/// megatron/core/transformer/transformer_config.py.
void check_megatron_rules(const std::vector<GivenFlag>& flags, std::int64_t world, options::Report& report);

}  // namespace tessera::flags
