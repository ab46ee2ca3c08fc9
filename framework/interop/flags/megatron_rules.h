#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"

namespace tessera::flags {

/// A command line of Megatron-LM as its rules look at it: a flag given twice counts once, with its last values.
class AskedFlags {
 public:
  /// `world`: processes of the run; 0: not known.
  AskedFlags(const std::vector<GivenFlag>& flags, std::int64_t world);

  bool has(const std::string& flag) const { return given_.count(flag) > 0; }
  bool any(const std::vector<const char*>& flags) const;
  /// Its value, or what its absence means.
  std::string word(const std::string& flag, const std::string& otherwise = "") const;
  std::vector<std::string> words(const std::string& flag) const;
  /// Throws NotKnown for a value that is not a number: ${NAME}.
  std::int64_t number(const std::string& flag, std::int64_t otherwise) const;
  double real(const std::string& flag, double otherwise) const;
  const GivenFlag* find(const std::string& flag) const;
  std::int64_t world() const;  ///< throws NotKnown
  struct NotKnown {};

  // What several rules ask.
  std::int64_t tensor() const { return number("--tensor-model-parallel-size", 1); }
  std::int64_t pipeline() const { return number("--pipeline-model-parallel-size", 1); }
  std::int64_t context() const { return number("--context-parallel-size", 1); }
  std::int64_t experts_cut() const { return number("--expert-model-parallel-size", 1); }
  std::int64_t replicas() const;
  std::int64_t layers() const { return number("--num-layers", number("--encoder-num-layers", 0)); }
  std::int64_t counted_layers() const;  ///< with embedding and loss where these count as layers
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

/// A rule of Megatron-LM that its way of doing things makes, and ours does not: it refuses a command line, never a
/// recipe.
struct MegatronRule {
  const char* name;                ///< its id in docs/rules.md
  std::vector<const char*> flags;  ///< that it looks at; the first one given is pointed at
  bool (*broken)(const AskedFlags& a);
  const char* message;  ///< what does not go together
  const char* advice;   ///< what to do
};

const std::vector<MegatronRule>& megatron_rules();

/// The source of a finding about a flag that is missing.
constexpr const char* no_flag = "the command line";

/// Report each rule at which Megatron-LM core_v0.12.1 itself would have stopped before it built anything: by the checks
/// of its arguments, of the configuration made of them, or of the first step's size. A rule about a value that is not
/// known (${NAME}) is not asked, nor one about processes when `world` is 0. Rules that a recipe has too are those of
/// recipe/rules.h. Source: core_v0.12.1, megatron/training/arguments.py,
/// megatron/core/transformer/transformer_config.py.
void check_megatron_rules(const std::vector<GivenFlag>& flags, std::int64_t world, options::Report& report);

}  // namespace tessera::flags
