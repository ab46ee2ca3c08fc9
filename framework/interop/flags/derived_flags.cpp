#include "framework/interop/flags/derived_flags.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/interop/flags/dataset_info.h"
#include "framework/interop/flags/tower_stages.h"
#include "framework/options/option_type.h"

namespace tessera::flags {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

const std::string m = "model_config.", d = "dataset_config.", p = "parallel_config.", e = "moe_config.",
                  l = "lora_config.", t = "training_config.";

/// What the other flags say, as numbers and words.
class Said {
 public:
  Said(const std::string& value, const options::Value& recipe, const std::vector<ConvertedFlag>& flags)
      : value_(value), recipe_(recipe), flags_(flags) {}

  /// The flag's own value. Throws ConfigError if it is not a number.
  std::int64_t own() const { return number(options::Value::of(value_, {}), "its value"); }
  const std::string& own_word() const { return value_; }
  /// The values of another flag as they were given, with commas; of several such flags the last. Nothing: not given.
  std::optional<std::string> flag(const std::string& name) const {
    std::optional<std::string> found;
    for (const auto& one : flags_)
      if (one.given.flag == name) found = tessera::joined(one.given.values);
    return found;
  }
  /// The items of a list, joined by commas; empty: it is not given.
  std::string list(const std::string& option) const {
    const auto* value = recipe_.at(option);
    std::string all;
    if (value)
      for (const auto& item : value->items) all += (all.empty() ? "" : ",") + item.scalar;
    return all;
  }
  double own_number() const { return real(options::Value::of(value_, {}), "its value"); }
  /// Whether a flag sets the option: it has more than the other program's default.
  bool gives(const std::string& option) const {
    const auto* value = recipe_.at(option);
    return value && value->origin.source.find(" not given") == std::string::npos;
  }
  double real(const std::string& option, double otherwise) const {
    const auto* value = recipe_.at(option);
    return value ? real(*value, option) : otherwise;
  }
  bool has(const std::string& option) const { return recipe_.at(option) != nullptr; }
  std::string word(const std::string& option) const {
    const auto* value = recipe_.at(option);
    return value ? value->scalar : "";
  }
  /// Throws ConfigError, with `advice`, if no flag says it or it is not a number.
  std::int64_t number(const std::string& option, const std::string& advice) const {
    const auto* value = recipe_.at(option);
    if (value == nullptr) throw ConfigError(text(option, " is not known; ", advice));
    return number(*value, option);
  }
  std::int64_t number(const std::string& option, std::int64_t otherwise) const {
    return has(option) ? number(option, "give a number") : otherwise;
  }

 private:
  static double real(const options::Value& value, const std::string& what) {
    double out = 0;
    if (!options::OptionType<double>::read(value, out))
      throw ConfigError(text(what, " is '", value.scalar, "', not a number; give one"));
    return out;
  }
  static std::int64_t number(const options::Value& value, const std::string& what) {
    std::int64_t out = 0;
    if (!options::OptionType<std::int64_t>::read(value, out))
      throw ConfigError(text(what, " is '", value.scalar, "', not a whole number; give one"));
    return out;
  }
  const std::string& value_;
  const options::Value& recipe_;
  const std::vector<ConvertedFlag>& flags_;
};

bool has_experts(const Said& said) { return said.has(m + "num_experts") || said.has(e + "num_experts"); }

Settings shared_experts(const Said& said) {
  if (said.own() == 0 || !has_experts(said)) return {};
  const auto advice = "give --moe-shared-expert-intermediate-size, the width of all shared experts together";
  const auto width =
      said.number(said.has(e + "moe_ffn_hidden_size") ? e + "moe_ffn_hidden_size" : m + "ffn_hidden_size", advice);
  return {{e + "moe_shared_expert_intermediate_size", std::to_string(said.own() * width)}};
}

Settings first_dense_layers(const Said& said) {
  const auto dense = said.own();
  if (dense <= 0 || !has_experts(said)) return {};
  const auto layers = said.number(m + "num_layers", "give --num-layers");
  const auto every = said.number(e + "moe_layer_freq", 1);
  if (every == 0 || dense >= layers)
    throw ConfigError(text("--first-k-dense-replace ", dense, " and --moe-layer-freq ", every,
                           " leave no layer with experts among ", layers,
                           "; give a --first-k-dense-replace below --num-layers, and a --moe-layer-freq other than 0"));
  std::string list = "[";
  for (std::int64_t i = 0; i < layers; ++i) list += text(i > 0 ? ", " : "", i >= dense && i % every == 0 ? 1 : 0);
  return {{e + "moe_layer_freq", list + "]"}};
}

Settings experts_over_tensor(const Said& said) {
  const auto tensor = said.number(p + "tensor_model_parallel_size", 1),
             experts = said.number(p + "expert_model_parallel_size", 1);
  return {{p + "expert_tensor_parallel_size", "1"},
          {p + "expert_model_parallel_size", std::to_string(experts * tensor)},
          {e + "moe_token_dispatcher_type", "alltoall"}};
}

Settings sequence_loss(const Said& said) {
  const auto coefficient = said.word(e + "moe_aux_loss_coeff");
  double number = 0;
  if (options::OptionType<double>::read(options::Value::of(coefficient, {}), number) && number == 0) return {};
  if (said.word(e + "moe_router_load_balancing_type") != "none") return {};  // nothing else reads the flag
  if (said.word(e + "moe_router_enable_expert_bias") == "true")
    throw ConfigError(
        "with --moe-router-enable-expert-bias its loss adds the bias to the scores, which Megatron-LM's does not; give "
        "--moe-router-load-balancing-type seq_aux_loss for that one, or --moe-aux-loss-coeff 0");
  return {{e + "moe_router_load_balancing_type", "seq_aux_loss"}};
}

Settings lora_rank(const Said& said) {
  Settings all = {{l + "lora_rank", said.own_word()}};
  if (!said.gives(l + "lora_alpha")) all.emplace_back(l + "lora_alpha", std::to_string(2 * said.own()));
  return all;
}

Settings lora_targets(const Said& said) {
  // Ours would give the queries, keys and values of a layer one adapter together.
  const std::string all = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj";
  return {{l + "target_modules[]", said.own_word() == "all" ? all : said.own_word()}};
}

/// --finetuning_type freeze gives the option its default; with other types these flags have no effect.
bool freezes(const Said& said) { return said.has(t + "freeze_trainable_layers"); }

Settings freeze_layers(const Said& said) {
  return freezes(said) ? Settings{{t + "freeze_trainable_layers", said.own_word()}} : Settings{};
}

Settings freeze_modules(const Said& said) {
  return freezes(said) ? Settings{{t + "freeze_trainable_modules[]", said.own_word()}} : Settings{};
}

Settings freeze_extra(const Said& said) {
  return freezes(said) ? Settings{{t + "freeze_extra_modules[]", said.own_word()}} : Settings{};
}

Settings modules_to_save(const Said& said) { return {{l + "modules_to_save[]", said.own_word()}}; }

Settings longrope_short(const Said& said) { return {{"model_config.rope_scaling_short_factor[]", said.own_word()}}; }
Settings longrope_long(const Said& said) { return {{"model_config.rope_scaling_long_factor[]", said.own_word()}}; }

/// LLaMA-Factory's gamma is beta times our ratio.
Settings ratio_of(const Said& said, double gamma) {
  const auto beta = said.real("preference_config.simpo_beta", 0.1);
  if (beta == 0) throw ConfigError("pref_beta is 0, so that the margin has no effect; give a pref_beta above 0");
  return {{"preference_config.gamma_beta_ratio", text(gamma / beta)}};
}

Settings simpo_gamma(const Said& said) { return ratio_of(said, said.own_number()); }

Settings pref_loss(const Said& said) {
  const auto& loss = said.own_word();
  if (loss == "kto_pair") throw ConfigError("learning from single judgements (kto_pair) is not supported");
  if (loss != "orpo" && loss != "simpo") return {{"preference_config.dpo_loss_type", loss}};
  Settings all = {{t + "stage", loss}};
  if (!said.gives("preference_config.simpo_beta")) all.emplace_back("preference_config." + loss + "_beta", "0.1");
  if (loss == "simpo" && !said.gives("preference_config.gamma_beta_ratio"))
    for (auto& one : ratio_of(said, 0.5)) all.push_back(std::move(one));
  return all;
}

Settings val_size(const Said& said) {
  const auto part = said.own_number();
  if (part == 0) return {};
  if (part < 0 || part >= 1)
    throw ConfigError(text("val_size ", said.own_word(), " is a number of samples; give a fraction of them, below 1"));
  return {{"dataset_config.split", text(1 - part, ",", part, ",0")},
          {t + "full_validation", "true"},
          {t + "eval_iters", "1"}};
}

Settings torchtune_model(const Said& said) {
  const auto name = said.own_word().substr(said.own_word().rfind('.') + 1);
  if (said.own_word().find("vision") != std::string::npos)
    throw ConfigError(text("'", name, "' reads pictures, which is not supported; choose a model of text"));
  if (name.starts_with("qlora_")) return {{l + "use_lora", "true"}, {l + "qlora", "true"}};
  return {{l + "use_lora", name.starts_with("lora_") ? "true" : "false"}};
}

Settings more_targets(const Said& said, const std::string& names) {
  const auto known = said.list(l + "target_modules");
  return {{l + "target_modules[]", known.empty() ? names : known + "," + names}};
}

Settings torchtune_targets(const Said& said) {
  auto names = said.own_word();
  std::replace(names.begin(), names.end(), ' ', ',');
  const std::string theirs = "output_proj", ours = "o_proj";
  if (const auto at = names.find(theirs); at != std::string::npos) names.replace(at, theirs.size(), ours);
  return more_targets(said, names);
}

Settings torchtune_mlp(const Said& said) {
  return said.own_word() == "true" ? more_targets(said, "gate_proj,up_proj,down_proj") : Settings{};
}

Settings torchtune_output(const Said& said) {
  return said.own_word() == "true" ? more_targets(said, "lm_head") : Settings{};
}

Settings torchtune_dataset(const Said& said) {
  return {{"dataset_config.dataset_type", "instruction"},
          {"dataset_config.data_path", said.own_word().substr(said.own_word().rfind('.') + 1)},
          {"dataset_config.split", "1,0,0"},
          {t + "eval_iters", "0"}};
}

Settings token_files(const Said& said, const std::string& why) {
  return {{d + "data_path", said.own_word()}, {"", text(why, ", so data_path is a prefix of token files")}};
}

void check_texts(const Said& said, const DatasetInfo& info, const std::vector<std::string>& names) {
  const bool pairs = said.word(d + "is_pairwise_dataset") == "true";
  if (info.pairs != pairs)
    throw ConfigError(text("the data set '", names.front(), "' has ", info.pairs ? "pairs" : "no pairs (ranking: true)",
                           ", which stage ", said.word(t + "stage"), " does not train on; choose another one"));
  if (said.flag("--packing") == "true" && !said.flag("--neat_packing"))
    throw ConfigError("packing of texts needs neat_packing: true here; give it, or make token files with --pack");
  if (said.flag("--max_samples") && names.size() > 1)
    throw ConfigError("max_samples is a number of each data set; leave it out, or give one data set");
}

// Texts, if its list of data sets is here; else token files.
Settings factory_dataset(const Said& said) {
  const auto folder = said.flag("--dataset_dir").value_or("data");
  const auto names = split_at_commas(said.own_word());
  if (!std::filesystem::exists(std::filesystem::path(folder) / "dataset_info.json"))
    return token_files(said, text("there is no ", folder, "/dataset_info.json in the folder of `tessera convert`"));
  const auto prompt_type = prompt_type_of_template(said.flag("--template").value_or(""));
  if (prompt_type.empty())
    return token_files(said, text("no prompt type renders texts as the template '",
                                  said.flag("--template").value_or("null"), "' of LLaMA-Factory"));
  const auto info = read_dataset_info(folder, names);
  check_texts(said, info, names);
  std::string files;
  for (const auto& file : info.files) files += (files.empty() ? "" : ",") + file;
  Settings all = {
      {d + "data_path[]", files}, {d + "handler_name", info.handler_name}, {d + "prompt_type", prompt_type}};
  if (!info.map_keys.empty()) all.emplace_back(d + "map_keys", info.map_keys);
  all.emplace_back(d + "enable_thinking", said.flag("--enable_thinking").value_or("true"));  // its default
  if (const auto most = said.flag("--max_samples")) all.emplace_back(d + "max_samples", *most);
  for (const std::string name : {"train_on_prompt", "mask_history"})
    if (!info.pairs && said.flag("--" + name) == "true") all.emplace_back(d + name, "true");
  return all;
}

Settings steps_per_epoch(const Said& said) {
  return {{t + "training_iters", std::to_string(said.own() * said.number(t + "epochs", 1))}};
}

Settings max_steps(const Said& said) {
  if (said.own() <= 0) return {};
  return {{t + "training_iters", said.own_word()}, {t + "epochs", "null"}};
}

Settings epochs(const Said& said) {
  if (said.gives(t + "training_iters")) return {};
  const auto number = said.own_number();
  const auto whole = static_cast<std::int64_t>(number);
  if (static_cast<double>(whole) != number || whole < 1)
    throw ConfigError(text("num_train_epochs is ", said.own_word(),
                           ", not a whole number of passes over the data; give one, or max_steps"));
  return {{t + "epochs", std::to_string(whole)}};
}

/// The schedule `constant` of Transformers has no warm-up, whatever is given.
Settings warm_up(const Said& said, const char* option) {
  if (said.flag("--lr_scheduler_type") == "constant")
    return {{"", "lr_scheduler_type constant has no warm-up; constant_with_warmup has one"}};
  return {{option, said.own_word()}};
}

Settings warmup_ratio(const Said& said) { return warm_up(said, "optimizer_config.lr_warmup_fraction"); }

Settings warmup_steps(const Said& said) { return warm_up(said, "optimizer_config.lr_warmup_iters"); }

Settings tower_stages(const Said& said) {
  const std::string vision = "image_encoder.vision_encoder.", decoder = "text_decoder.", list = "pipeline_num_layers";
  const auto tower = said.flag(vision + list), layers = said.flag(decoder + list);
  const auto stages = said.number(p + "pipeline_model_parallel_size", 1);
  if (stages == 1) return {};  // their program does not read it
  if (!tower || !layers)
    throw ConfigError(text((tower ? decoder : vision) + list, " is not given, but pipeline_model_parallel_size is ",
                           stages, "; give the layers of each stage for both models"));
  const auto sums = added_stages({vision + list, *tower, said.number("vision_config.num_layers", "give it")},
                                 {decoder + list, *layers, said.number(m + "num_layers", "give it")}, stages);
  Settings all = {{p + "num_layer_list", sums.list}};
  if (sums.chunks > 1)
    all.emplace_back("", text("pipeline_num_layers is [chunk][stage] in the file; parallel_config.num_layer_list is "
                              "[stage][chunk]: ",
                              sums.list));
  return all;
}

// Records that are streamed are not shuffled.
Settings record_order(const Said& said) {
  const bool streams = said.flag("dataset_param.basic_parameters.streaming") == "true";
  return {{"dataset_config.shuffle_epochs", said.own_word() == "true" && !streams ? "true" : "false"}};
}

Settings text_activation(const Said& said) {
  const bool gated = said.flag("text_decoder.gated_linear_unit") == "true";
  const std::string plain[] = {"silu", "quick_gelu", "gelu_tanh", "gelu_erf"},
                    with_gate[] = {"swiglu", "quick_geglu", "geglu", "geglu_erf"};
  const auto& word = said.own_word();
  const int kind = word == "silu" ? 0 : word == "quick_gelu" ? 1 : word == "gelu_pytorch_tanh" ? 2 : 3;
  return {{m + "hidden_act", (gated ? with_gate : plain)[kind]}};
}

Settings merged_width(const Said& said) {
  const auto width = said.number("vision_config.hidden_size", "give it"),
             merge = said.number("vision_config.spatial_merge_size", 2), merged = width * merge * merge;
  if (said.own() != merged)
    throw ConfigError(text("is ", said.own(), ", but the merger's inner size is ", merged, ", the tower's hidden_size ",
                           width, " times ", merge, " x ", merge, " patches; another size is not supported"));
  return {};
}

Settings mllm_files(const Said& said) {
  const std::string of = "dataset_param.basic_parameters.", name = "dataset_config.dataset";
  Settings all = {{name, said.flag(of + "dataset").value_or("")}};
  if (said.flag(of + "val_dataset") || said.real("dataset_config.val_rate", 0) != 0) return all;
  if (said.number(t + "eval_iters", 0) <= 0) return all;
  all.emplace_back(t + "eval_iters", "0");
  all.emplace_back("", "data.json has neither val_dataset nor val_rate: nothing is evaluated, as there");
  return all;
}

struct Rule {
  const char* name;
  Settings (*settings)(const Said& said);
  const char* words;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"shared_experts", shared_experts,
       "`moe_config.moe_shared_expert_intermediate_size`: this number times the hidden size of an expert"},
      {"first_dense_layers", first_dense_layers,
       "`moe_config.moe_layer_freq`: a list in which that many layers at the beginning have no experts; 0 and -1: "
       "none"},
      {"experts_over_tensor", experts_over_tensor,
       "`parallel_config.expert_tensor_parallel_size: 1`, and `parallel_config.expert_model_parallel_size` times the "
       "tensor-parallel size; also `moe_config.moe_token_dispatcher_type: alltoall`, which does not affect results and "
       "goes with any sizes"},
      {"sequence_loss", sequence_loss,
       "`moe_config.moe_router_load_balancing_type: seq_aux_loss` where that is none and `moe_aux_loss_coeff` is not "
       "0; "
       "refused with an expert bias, which its loss adds to the scores"},
      {"lora_rank", lora_rank,
       "`lora_config.lora_rank`, and `lora_config.lora_alpha`: twice the rank, unless it is given"},
      {"lora_targets", lora_targets,
       "`lora_config.target_modules`: the names between commas; all: each linear layer of Llama's kind"},
      {"modules_to_save", modules_to_save, "`lora_config.modules_to_save`: the names between commas"},
      {"longrope_short", longrope_short, "`model_config.rope_scaling_short_factor`: the numbers between commas"},
      {"longrope_long", longrope_long, "`model_config.rope_scaling_long_factor`: the numbers between commas"},
      {"freeze_layers", freeze_layers,
       "`training_config.freeze_trainable_layers` with `--finetuning_type freeze`, else without effect"},
      {"freeze_modules", freeze_modules,
       "`training_config.freeze_trainable_modules`: the names between commas, with `--finetuning_type freeze`"},
      {"freeze_extra", freeze_extra,
       "`training_config.freeze_extra_modules`: the names between commas, with `--finetuning_type freeze`"},
      {"pref_loss", pref_loss,
       "`preference_config.dpo_loss_type`; orpo and simpo: `training_config.stage`; kto_pair is refused"},
      {"simpo_gamma", simpo_gamma, "`preference_config.gamma_beta_ratio`: this number divided by beta"},
      {"val_size", val_size,
       "`dataset_config.split`: this fraction is the validation split, which is evaluated as a whole; refused from 1 "
       "on"},
      {"torchtune_model", torchtune_model,
       "`lora_config.use_lora`: whether its name begins with lora_ or qlora_; this one also `lora_config.qlora`"},
      {"torchtune_targets", torchtune_targets, "`lora_config.target_modules`: these names; output_proj: o_proj"},
      {"torchtune_mlp", torchtune_mlp, "true adds gate_proj, up_proj, down_proj to `lora_config.target_modules`"},
      {"torchtune_output", torchtune_output, "true adds lm_head to `lora_config.target_modules`"},
      {"torchtune_dataset", torchtune_dataset,
       "`dataset_config.data_path`: its last word, of token files of `dataset_type: instruction`"},
      {"factory_dataset", factory_dataset,
       "`dataset_config.data_path`: the files that dataset_info.json in `--dataset_dir` names, with `handler_name`, "
       "`map_keys` and `prompt_type`; without that file the prefix of token files"},
      {"steps_per_epoch", steps_per_epoch, "`training_config.training_iters`: this number times the epochs"},
      {"max_steps", max_steps, "`training_config.training_iters` instead of `training_config.epochs`"},
      {"epochs", epochs, "`training_config.epochs`, unless a number of steps is given; refused if it is not whole"},
      {"warmup_ratio", warmup_ratio,
       "`optimizer_config.lr_warmup_fraction`; without effect with `--lr_scheduler_type constant`"},
      {"warmup_steps", warmup_steps,
       "`optimizer_config.lr_warmup_iters`; without effect with `--lr_scheduler_type constant`"},
      {"tower_stages", tower_stages,
       "`parallel_config.num_layer_list`: the layers of both models on each stage together, [chunk][stage] turned to "
       "[stage][chunk]; not read with one stage"},
      {"mllm_files", mllm_files,
       "`dataset_config.dataset`: the files with commas; also `training_config.eval_iters: 0` without val_dataset and "
       "val_rate"},
      {"record_order", record_order, "`dataset_config.shuffle_epochs`; false with streaming"},
      {"text_activation", text_activation,
       "`model_config.hidden_act`: silu, quick_gelu, gelu_pytorch_tanh, anything else is exact GELU; with a gate if "
       "`gated_linear_unit` is true"},
      {"merged_width", merged_width,
       "must be `vision_config.hidden_size` times the patches that are merged; another size is refused"}};
  return all;
}

const Rule& rule_named(const std::string& name) {
  const auto found = std::find_if(rules().begin(), rules().end(), [&](const auto& rule) { return rule.name == name; });
  must(found != rules().end(), "a row with `derived` names one of the rules of derived_flags.h");
  return *found;
}

}  // namespace

Settings derived_settings(const std::string& rule, const std::string& value, const options::Value& recipe,
                          const std::vector<ConvertedFlag>& given) {
  return rule_named(rule).settings(Said(value, recipe, given));
}

std::string describe_rule(const std::string& rule) { return rule_named(rule).words; }

std::vector<std::string> split_at_commas(const std::string& words) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= words.size();) {
    const auto end = std::min(words.find(',', at), words.size());
    auto word = words.substr(at, end - at);
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    if (!word.empty()) all.push_back(word);
    at = end + 1;
  }
  return all;
}

}  // namespace tessera::flags
