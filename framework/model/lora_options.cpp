#include "framework/model/lora_options.h"

#include <cmath>

#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using Text = options::OptionType<std::string>;
using Texts = options::OptionType<std::vector<std::string>>;
using Integer = options::OptionType<std::int64_t>;

constexpr std::int64_t most_rank = 65536;

std::string number_schema() { return text(R"({"type": "integer", "minimum": 1, "maximum": )", most_rank, "}"); }

bool is_number(const options::Value& value, std::int64_t& out) {
  return Integer::read(value, out) && out >= 1 && out <= most_rank;
}

bool read_cell(const options::Value& value, TargetCell& cell) {
  for (const auto& [name, given] : value.fields) {
    auto& number = name == "rank" ? cell.rank : cell.alpha;
    const bool good = name == "cell"                      ? Text::read(given, cell.patterns.emplace_back())
                      : name == "rank" || name == "alpha" ? is_number(given, number.emplace())
                                                          : false;
    if (!good) return false;
  }
  return cell.patterns.size() == 1;
}

}  // namespace

std::string ModuleNames::Option::json_schema() {
  return R"({"anyOf": [{"$ref": "#/$defs/text"}, {"type": "array", "items": {"$ref": "#/$defs/text"}}]})";
}

bool ModuleNames::Option::read(const options::Value& value, ModuleNames& out) {
  ModuleNames given;
  given.one_text = value.kind == options::Value::Kind::scalar;
  if (given.one_text)
    given.names = {value.scalar};
  else if (!Texts::read(value, given.names))
    return false;
  out = std::move(given);
  return true;
}

options::Value ModuleNames::Option::write(const ModuleNames& names) {
  return names.one_text ? options::Value::of(names.names.at(0), {}) : Texts::write(names.names);
}

std::string NumbersByPattern::Option::json_schema() {
  return text(R"({"type": "object", "additionalProperties": )", number_schema(), "}");
}

bool NumbersByPattern::Option::read(const options::Value& value, NumbersByPattern& out) {
  NumbersByPattern given;
  if (value.kind != options::Value::Kind::group && value.kind != options::Value::Kind::none) return false;
  for (const auto& [pattern, number] : value.fields)
    if (!is_number(number, given.all.emplace_back(pattern, 0).second)) return false;
  out = std::move(given);
  return true;
}

options::Value NumbersByPattern::Option::write(const NumbersByPattern& numbers) {
  options::Value value;
  if (!numbers.all.empty()) value.kind = options::Value::Kind::group;
  for (const auto& [pattern, number] : numbers.all) value.fields.push_back({pattern, Integer::write(number)});
  return value;
}

std::string TargetCell::Option::json_schema() {
  const std::string begin = R"({"type": "object", "additionalProperties": false, "required": [)";
  const auto list = text(begin, R"("target_cells"], "properties": {"target_cells": )",
                         R"({"type": "array", "items": {"$ref": "#/$defs/text"}}}})");
  const auto cell = text(begin, R"("cell"], "properties": {"cell": {"$ref": "#/$defs/text"}, "rank": )",
                         number_schema(), R"(, "alpha": )", number_schema(), "}}");
  return text(R"({"anyOf": [{"$ref": "#/$defs/text"}, )", list, ", ", cell, "]}");
}

bool TargetCell::Option::read(const options::Value& value, TargetCell& out) {
  TargetCell cell;
  const auto* list = value.find("target_cells");
  const bool good = value.kind == options::Value::Kind::scalar ? (cell.patterns = {value.scalar}, true)
                    : list                                     ? Texts::read(*list, cell.patterns)
                                                               : read_cell(value, cell);
  if (good) out = std::move(cell);
  return good;
}

options::Value TargetCell::Option::write(const TargetCell& cell) {
  options::Value value;
  value.kind = options::Value::Kind::group;
  if (!cell.rank && !cell.alpha) {
    if (cell.patterns.size() == 1) return options::Value::of(cell.patterns[0], {});
    value.fields.push_back({"target_cells", Texts::write(cell.patterns)});
    return value;
  }
  value.fields.push_back({"cell", options::Value::of(cell.patterns.at(0), {})});
  if (cell.rank) value.fields.push_back({"rank", Integer::write(*cell.rank)});
  if (cell.alpha) value.fields.push_back({"alpha", Integer::write(*cell.alpha)});
  return value;
}

options::Words<LoraInit> words(LoraInit) {
  return {{"true", LoraInit::kaiming}, {"gaussian", LoraInit::gaussian}, {"false", LoraInit::random}};
}

options::Words<LoraBias> words(LoraBias) {
  return {{"none", LoraBias::none}, {"all", LoraBias::all}, {"lora_only", LoraBias::lora_only}};
}

double LoraOptions::scale(std::int64_t rank, std::int64_t alpha) const {
  const auto r = static_cast<double>(rank);
  return static_cast<double>(alpha) / (use_rslora ? std::sqrt(r) : r);
}

namespace {

using Lora = LoraOptions;

constexpr const char* no_lora_flag = "only Tessera has it";
constexpr const char* without_lora = "`use_lora` is false";
constexpr auto with_lora = [](const Lora& o) { return o.use_lora; };

void describe_targets(options::Schema<Lora>& s) {
  s.option("target_cells", &Lora::target_cells,
           "Linear layers with adapters, as in MindSpeed-Core-MS: patterns that must match the whole name of a layer, "
           "in lists {target_cells}, and {cell, rank, alpha} for a pattern with its own rank or alpha. Of several that "
           "match, the last decides.")
      .replaces({"target_modules"})
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag)
      .must(
          "LoRA targets",
          [](const Lora& o) {
            return !o.use_lora || o.target_cells || o.target_modules || !o.target_parameters.empty();
          },
          [](const Lora&) {
            return "use_lora is true, but none of target_cells, target_modules and target_parameters is given";
          },
          "give target_modules, for example all-linear", {"use_lora", "target_modules", "target_parameters"})
      .must(
          "LoRA targets", [](const Lora& o) { return !o.target_cells || !o.target_modules; },
          [](const Lora&) { return "target_cells and target_modules are both given"; }, "give one of them",
          {"target_modules"});
  s.option(
       "target_modules", &Lora::target_modules,
       "Linear layers with adapters, as in PEFT: a list of names, which a layer's name must be or end with after a "
       "dot; one text: all-linear, which means all linear layers but the output layer, those of Transformers where it "
       "has several for one of ours, or a pattern that must match the whole name. Names may be those of Megatron-LM "
       "(linear_qkv), MindSpeed-Core-MS (qkv_proj) or "
       "Transformers (q_proj). A fused layer gets one adapter; parts of it, named apart, one each.")
      .replaces({"target_cells"})
      .matters_when(with_lora, without_lora);
  s.option(
       "target_parameters", &Lora::target_parameters,
       "Further weights with adapters, as in PEFT: names of parameters in Transformers, or their ends after a dot. "
       "mlp.experts.gate_up_proj and mlp.experts.down_proj are the weights of all experts of a layer, each of which "
       "gets an adapter; mlp.gate.weight is that of the router.")
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag)
      .must(
          "LoRA targets", [](const Lora& o) { return o.target_parameters.empty() || o.lora_dropout == 0; },
          [](const Lora& o) { return text("lora_dropout is ", o.lora_dropout, ", but target_parameters takes none"); },
          "set lora_dropout to 0, or name linear layers in target_modules", {"lora_dropout"});
  s.option("exclude_modules", &Lora::exclude_modules,
           "Layers without adapters although `target_modules` or `target_cells` name them: a list of names or one "
           "pattern, as `target_modules`.")
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
  s.option("layers_to_transform", &Lora::layers_to_transform,
           "Numbers, from 0, of the transformer layers with adapters; null: all.")
      .at_least(0)
      .at_most(options::most_layers)
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
}

void describe_sizes(options::Schema<Lora>& s) {
  s.option("lora_rank", &Lora::lora_rank, "Rank of the adapters.")
      .at_least(1)
      .at_most(most_rank)
      .matters_when(with_lora, without_lora);
  s.option("lora_alpha", &Lora::lora_alpha,
           "Scale of the adapters: their outputs are multiplied by lora_alpha / rank, or lora_alpha / sqrt(rank) with "
           "`use_rslora`.")
      .at_least(1)
      .at_most(most_rank)
      .matters_when(with_lora, without_lora);
  s.option("rank_pattern", &Lora::rank_pattern,
           "Ranks of single layers: {pattern: rank}, where a pattern must match the end of a layer's name, from a dot "
           "or its beginning. The first that matches decides.")
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
  s.option("alpha_pattern", &Lora::alpha_pattern,
           "Values of lora_alpha of single layers: {pattern: alpha}; patterns as "
           "in `rank_pattern`.")
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
  s.option("use_rslora", &Lora::use_rslora, "Rank-stabilised scale: lora_alpha / sqrt(rank).")
      .matters_when(with_lora, without_lora);
  s.option("use_dora", &Lora::use_dora,
           "Weight-decomposed adapters (DoRA): the rows of W + scale B A are divided by their norms and multiplied by "
           "trained magnitudes (Liu et al., arXiv:2402.09353).")
      .when_changed(options::Change::tensors)
      .matters_when(with_lora, without_lora);
}

void describe_training(options::Schema<Lora>& s) {
  s.option("lora_dropout", &Lora::lora_dropout, "Dropout rate of the inputs of adapters.")
      .at_least(0)
      .below(1)
      .when_changed(options::Change::told)
      .matters_when(with_lora, without_lora);
  s.option("bias", &Lora::bias,
           "Biases trained beside the adapters: none, all, or those of layers with adapters (lora_only).")
      .when_changed(options::Change::state)
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
  s.option("modules_to_save", &Lora::modules_to_save,
           "Further modules that are trained in full: names as in `target_modules`. Their parameters are trained "
           "themselves, not copies of them.")
      .when_changed(options::Change::state)
      .matters_when(with_lora, without_lora);
  s.option("init_lora_weights", &Lora::init_lora_weights,
           "Initial adapters: true: A is uniform (Kaiming), B zero; gaussian: A is normal with standard deviation "
           "1 / rank, B zero; false: A and B are uniform.")
      .when_changed(options::Change::told)
      .matters_when(with_lora, without_lora)
      .no_flag(no_lora_flag);
  s.option(
       "loraplus_lr_ratio", &Lora::loraplus_lr_ratio,
       "LoRA+: learning rate of B, and of biases, magnitudes and norm weights trained with it, relative to that of A "
       "(Hayou et al., arXiv:2402.12354); null: 1.")
      .above(0)
      .at_most(options::most_factor)
      .when_changed(options::Change::told)
      .matters_when(with_lora, without_lora);
  s.option("loraplus_lr_embedding", &Lora::loraplus_lr_embedding,
           "LoRA+: learning rate of the factors of the word embedding's adapter; it follows the schedule of "
           "`learning_rate`. The default is PEFT's.")
      .at_least(0)
      .at_most(options::most_rate)
      .when_changed(options::Change::told)
      .matters_when([](const Lora& o) { return o.use_lora && o.loraplus_lr_ratio; },
                    "`use_lora` is false or `loraplus_lr_ratio` is null");
  s.option(
       "adapter", &Lora::adapter,
       "Folder of a saved adapter of PEFT that training starts from: its adapters, and the parameters that it has "
       "in full. It belongs to the model that `training_config.load_checkpoint` names, and must be of the kind that "
       "the other options of this group describe. null: new adapters.")
      .when_changed(options::Change::silent)
      .matters_when(with_lora, without_lora);
}

void describe_quantising(options::Schema<Lora>& s) {
  s.option(
       "qlora", &Lora::qlora,
       "Keep the frozen weights of linear layers in 4 bits (NF4; Dettmers et al., arXiv:2305.14314), with the codes "
       "of bitsandbytes. The folder of Hugging Face Transformers in `load_checkpoint` is quantised once, to the "
       "folder `quantised` in `output_dir`; one in 4 bits is used as it is. Not the output layer, routers and "
       "experts.")
      .must(
          "QLoRA", [](const Lora& o) { return !o.qlora || o.use_lora; },
          [](const Lora&) { return "qlora is true, but use_lora is false: weights in 4 bits cannot be trained"; },
          "set use_lora, or leave qlora out", {"use_lora"});
  s.option("qlora_double_quant", &Lora::qlora_double_quant,
           "Keep the maxima of the blocks of 4-bit weights in 8 bits (double quantisation).")
      .matters_when([](const Lora& o) { return o.qlora; }, "`qlora` is false");
}

}  // namespace

void describe(options::Schema<LoraOptions>& s) {
  s.when_changed(options::Change::weights);
  s.option("use_lora", &Lora::use_lora,
           "Train low-rank adapters of linear layers (LoRA); all other parameters are frozen.")
      .when_changed(options::Change::tensors);
  describe_targets(s);
  describe_sizes(s);
  describe_training(s);
  describe_quantising(s);
}

}  // namespace tessera::model
