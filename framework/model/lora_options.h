#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/options/schema.h"

namespace tessera::model {

/// Names of modules as PEFT takes them: a list of names, each of which a module's name must be or end with after a dot;
/// or one text, a regular expression that must match a module's whole name, or a word such as all-linear.
struct ModuleNames {
  std::vector<std::string> names;
  bool one_text = false;  ///< given as a text instead of a list
  bool operator==(const ModuleNames&) const = default;

  struct Option : options::OneValue<ModuleNames> {
    static std::string name() { return "text or list of text"; }
    static std::string json_schema();
    static bool read(const options::Value& value, ModuleNames& out);
    static options::Value write(const ModuleNames& names);
  };
};

/// Numbers by regular expressions of names: {"q_proj|k_proj": 4}.
struct NumbersByPattern {
  std::vector<std::pair<std::string, std::int64_t>> all;

  struct Option : options::OneValue<NumbersByPattern> {
    static std::string name() { return "map of pattern: int"; }
    static std::string json_schema();
    static bool read(const options::Value& value, NumbersByPattern& out);
    static options::Value write(const NumbersByPattern& numbers);
  };
};

/// An item of target_cells: patterns of names, or one pattern with its own rank or alpha.
struct TargetCell {
  std::vector<std::string> patterns;  ///< regular expressions that must match a whole name
  std::optional<std::int64_t> rank, alpha;

  /// In a recipe: a pattern, {target_cells: [pattern, ..]}, or {cell: pattern, rank: 4, alpha: 16}.
  struct Option : options::OneValue<TargetCell> {
    static std::string name() { return "pattern, {target_cells} or {cell, rank, alpha}"; }
    static std::string json_schema();
    static bool read(const options::Value& value, TargetCell& out);
    static options::Value write(const TargetCell& cell);
  };
};

/// How adapters are initialised. B begins with zeros, except for `random`.
enum class LoraInit {
  kaiming,   ///< A uniform in [-1 / sqrt(in), 1 / sqrt(in)): PEFT's true
  gaussian,  ///< A normal with standard deviation 1 / rank
  random     ///< A and B uniform, as kaiming, by the number of their own inputs: PEFT's false
};
options::Words<LoraInit> words(LoraInit);

/// Which biases are trained beside the adapters.
enum class LoraBias { none, all, lora_only };
options::Words<LoraBias> words(LoraBias);

/// Options of lora_config: low-rank adapters beside frozen weights. Source: Hu et al., arXiv:2106.09685.
struct LoraOptions {
  bool use_lora = false;
  std::int64_t lora_rank = 8;
  std::int64_t lora_alpha = 32;
  double lora_dropout = 0;
  std::optional<std::vector<TargetCell>> target_cells;
  std::optional<ModuleNames> target_modules, exclude_modules;
  std::vector<std::string> target_parameters;
  std::optional<std::vector<std::int64_t>> layers_to_transform;
  NumbersByPattern rank_pattern, alpha_pattern;
  bool use_rslora = false;
  bool use_dora = false;
  LoraBias bias = LoraBias::none;
  std::vector<std::string> modules_to_save;
  LoraInit init_lora_weights = LoraInit::kaiming;
  std::optional<double> loraplus_lr_ratio;
  double loraplus_lr_embedding = 1e-6;
  bool qlora = false;
  bool qlora_double_quant = false;
  std::optional<std::string> adapter;

  /// Factor of B A for an adapter of `rank` and `alpha`.
  double scale(std::int64_t rank, std::int64_t alpha) const;
};
/// Declares the options.
void describe(options::Schema<LoraOptions>& s);

}  // namespace tessera::model
