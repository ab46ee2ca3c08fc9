#include "framework/interop/flags/argument_rules.h"

#include <nlohmann/json.hpp>

#include "framework/interop/flags/megatron_arguments.h"
#include "framework/interop/flags/python_number.h"

namespace tessera::flags {
namespace {

using Json = nlohmann::json;

struct ArgumentInputs {
  const recipe::Recipe& recipe;
  std::int64_t world, replicas;
};

struct ArgumentRule {
  const char* name;
  void (*apply)(const ArgumentInputs& run, Json& a);
};

/// Whether nobody gave the option.
bool is_default(const ArgumentInputs& r, const char* option) {
  const auto* value = r.recipe.resolved.at(option);
  return !value || value->origin.layer == 0;
}

/// The value of an option of model_config; of one that is null, its derived default.
std::string effective(const ArgumentInputs& r, const std::string& option) {
  const auto full = "model_config." + option;
  if (const auto derived = r.recipe.derived(full)) return derived->value;
  const auto* value = r.recipe.resolved.at(full);
  return value ? text(*value) : "";
}
std::int64_t number_of(const ArgumentInputs& r, const std::string& option) { return std::stoll(effective(r, option)); }
bool holds(const ArgumentInputs& r, const std::string& option) { return effective(r, option) == "true"; }

bool is_true(const Json& a, const char* name) { return a.contains(name) && a[name] == true; }
bool is_missing(const Json& a, const char* name) { return !a.contains(name) || a[name].is_null(); }

/// Chunks of a stage as their schedule counts them; none: the plain one.
std::optional<std::int64_t> virtual_stages(const parallel::ParallelOptions& o, const recipe::Recipe& recipe) {
  const bool asked = o.num_layers_per_virtual_pipeline_stage || o.num_virtual_stages_per_pipeline_rank ||
                     o.virtual_pipeline_model_parallel_size.value_or(1) > 1;
  const auto chunks = recipe.layer_plan().chunks();
  return asked || chunks > 1 ? std::optional<std::int64_t>(chunks) : std::nullopt;
}

const char* torch_type(const model::HalfPrecisionOptions& o) {
  if (o.bf16) return "torch.bfloat16";
  return o.fp16 ? "torch.float16" : "torch.float32";
}

std::string type_in_torch(const std::string& word) {
  if (word == "fp32") return "torch.float32";
  if (word == "bf16") return "torch.bfloat16";
  if (word == "fp16") return "torch.float16";
  return word == "fp8" ? "torch.uint8" : word;
}

const std::vector<ArgumentRule>& parser_rules() {
  static const std::vector<ArgumentRule> all = {
      {"P4",
       [](const ArgumentInputs&, Json& a) {
         for (const auto* name :
              {"no_save_optim", "no_save_rng", "no_load_optim", "no_load_rng", "async_save", "use_cpu_initialization"})
           if (a.contains(name) && a[name] == false) a[name] = nullptr;
       }},
      {"P7",
       [](const ArgumentInputs&, Json& a) {
         if (!is_missing(a, "attention_backend"))
           a["attention_backend"] = "AttnBackend." + a["attention_backend"].get<std::string>();
       }},
      {"P8",
       [](const ArgumentInputs& r, Json& a) {
         if (!r.recipe.ramp.rampup_batch_size) return;
         a["rampup_batch_size"] = Json::array();
         for (const auto number : *r.recipe.ramp.rampup_batch_size)
           a["rampup_batch_size"].push_back(std::to_string(number));
       }},
      {"P9",
       [](const ArgumentInputs&, Json& a) {
         std::int64_t every = 0;
         if (is_missing(a, "moe_layer_freq") || !a["moe_layer_freq"].is_string()) return;
         if (options::OptionType<std::int64_t>::read(
                 options::Value::of(python_number(a["moe_layer_freq"].get<std::string>()), {}), every))
           a["moe_layer_freq"] = every;
       }},
      {"P11",
       [](const ArgumentInputs& r, Json& a) {
         a["rank"] = 0;
         a["world_size"] = r.world;
       }},
      {"P13", [](const ArgumentInputs&, Json& a) {
         if (a.contains("tokenizer_type") && a["tokenizer_type"].is_null()) a["tokenizer_type"] = "GPT2BPETokenizer";
       }}};
  return all;
}

const std::vector<ArgumentRule>& model_rules() {
  static const std::vector<ArgumentRule> all = {
      {"M1", [](const ArgumentInputs& r, Json& a) { a["encoder_num_layers"] = number_of(r, "num_layers"); }},
      {"M3", [](const ArgumentInputs& r, Json& a) { a["ffn_hidden_size"] = number_of(r, "ffn_hidden_size"); }},
      {"M4", [](const ArgumentInputs& r, Json& a) { a["kv_channels"] = number_of(r, "kv_channels"); }},
      {"M5",
       [](const ArgumentInputs& r, Json& a) {
         a["seq_length"] = r.recipe.size.seq_length;
         a["encoder_seq_length"] = r.recipe.size.seq_length;
       }},
      {"M6", [](const ArgumentInputs& r,
                Json& a) { a["max_position_embeddings"] = number_of(r, "max_position_embeddings"); }},
      {"M11",
       [](const ArgumentInputs& r, Json& a) {
         const bool exact_gelu =
             effective(r, "hidden_act") == "gelu_erf" && !holds(r, "gated_linear_unit") && !holds(r, "swiglu");
         a["bias_gelu_fusion"] = holds(r, "add_bias_linear") && !exact_gelu;
         a["add_qkv_bias"] = holds(r, "qkv_has_bias");
       }},
      {"M12",
       [](const ArgumentInputs& r, Json& a) {
         if (effective(r, "position_embedding_type") != "rope") a["apply_rope_fusion"] = false;
       }},
      {"M17",
       [](const ArgumentInputs&, Json& a) {
         if (is_true(a, "apply_query_key_layer_scaling")) a["attention_softmax_in_fp32"] = true;
       }},
      {"REC4",
       [](const ArgumentInputs& r, Json& a) {
         if (is_default(r, "model_config.recompute_modules")) a["recompute_modules"] = nullptr;
       }},
      {"MOE1",
       [](const ArgumentInputs&, Json& a) {
         if (a.contains("num_experts") && a["num_experts"] == 0) a["num_experts"] = nullptr;
       }},
      {"MOE2", [](const ArgumentInputs& r, Json& a) {
         if (is_missing(a, "moe_ffn_hidden_size")) a["moe_ffn_hidden_size"] = number_of(r, "ffn_hidden_size");
       }}};
  return all;
}

const std::vector<ArgumentRule>& parallel_rules() {
  static const std::vector<ArgumentRule> all = {
      {"PAR3",
       [](const ArgumentInputs& r, Json& a) {
         a["data_parallel_size"] = r.replicas;
         a["transformer_pipeline_model_parallel_size"] = r.recipe.parallel.pipeline_model_parallel_size;
       }},
      {"PAR5",
       [](const ArgumentInputs& r, Json& a) {
         if (is_missing(a, "expert_tensor_parallel_size"))
           a["expert_tensor_parallel_size"] = r.recipe.parallel.tensor_model_parallel_size;
       }},
      {"PAR6",
       [](const ArgumentInputs& r, Json& a) {
         const auto chunks = virtual_stages(r.recipe.parallel, r.recipe);
         a["virtual_pipeline_model_parallel_size"] = chunks ? Json(*chunks) : Json();
         if (!chunks) a["overlap_p2p_comm"] = a["align_param_gather"] = false;
       }},
      {"PAR10",
       [](const ArgumentInputs& r, Json& a) {
         if (r.recipe.parallel.tensor_model_parallel_size == 1) a["sequence_parallel"] = false;
       }},
      {"PAR15",
       [](const ArgumentInputs&, Json& a) {
         const auto how = a.value("data_parallel_sharding_strategy", Json());
         if (how == "optim_grads_params") a["overlap_param_gather"] = true;
         if (how == "optim_grads_params" || how == "optim_grads") a["overlap_grad_reduce"] = true;
       }},
      {"PAR25",
       [](const ArgumentInputs& r, Json& a) {
         if (!a.contains("cp_comm_type")) return;
         a["cp_comm_type"] = Json::array();
         for (const auto exchange : r.recipe.parallel.cp_comm_type.layers)
           a["cp_comm_type"].push_back(options::OptionType<parallel::ContextExchange>::write(exchange).scalar);
         if (a["cp_comm_type"].empty()) a["cp_comm_type"].push_back("p2p");
       }},
      {"PAR27", [](const ArgumentInputs&, Json& a) {
         if (is_true(a, "lazy_mpu_init")) a["use_cpu_initialization"] = true;
       }}};
  return all;
}

const std::vector<ArgumentRule>& run_rules() {
  static const std::vector<ArgumentRule> all = {
      {"B1",
       [](const ArgumentInputs& r, Json& a) {
         a["micro_batch_size"] = r.recipe.batch.batch_size;
         a["global_batch_size"] = r.recipe.batch_sizes(r.replicas).global;
       }},
      {"B8",
       [](const ArgumentInputs& r, Json& a) {
         if (r.recipe.batch.in_samples() || r.recipe.training.training_iters == 0) a["train_iters"] = nullptr;
       }},
      {"B9",
       [](const ArgumentInputs&, Json& a) {
         for (const auto* name : {"consumed_train_samples", "skipped_train_samples", "consumed_valid_samples"})
           a[name] = 0;
         a["variable_seq_lengths"] = false;
       }},
      {"DAT1",
       [](const ArgumentInputs&, Json& a) {
         if (is_missing(a, "split") && !is_missing(a, "data_path")) a["split"] = "969, 30, 1";
       }},
      {"DAT7",
       [](const ArgumentInputs&, Json& a) {
         if (is_missing(a, "dataloader_type")) a["dataloader_type"] = "single";
       }},
      {"O2",
       [](const ArgumentInputs&, Json& a) {
         if (a.value("weight_decay_incr_style", Json()) == "constant")
           a["start_weight_decay"] = a["end_weight_decay"] = a["weight_decay"];
       }},
      {"O6",
       [](const ArgumentInputs&, Json& a) {
         for (const auto* name : {"main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"})
           if (!is_missing(a, name)) a[name] = type_in_torch(a[name].get<std::string>());
       }},
      {"MP1", [](const ArgumentInputs& r, Json& a) { a["params_dtype"] = torch_type(r.recipe.half); }},
      {"MP2",
       [](const ArgumentInputs& r, Json& a) {
         if (r.recipe.half.fp16 && r.recipe.loss_scale.loss_scale.value_or(0) == 0)
           a["check_for_nan_in_loss_and_grad"] = false;
       }},
      {"MP3",
       [](const ArgumentInputs& r, Json& a) {
         if (is_missing(a, "accumulate_allreduce_grads_in_fp32"))
           a["accumulate_allreduce_grads_in_fp32"] = r.recipe.half.bf16 || r.recipe.half.fp16;
         a["grad_reduce_in_bf16"] = r.recipe.half.bf16 && a["accumulate_allreduce_grads_in_fp32"] == false;
       }},
      {"C2", [](const ArgumentInputs&, Json& a) { a["use_dist_ckpt"] = a.value("ckpt_format", Json()) != "torch"; }},
      {"C3",
       [](const ArgumentInputs& r, Json& a) {
         if (is_default(r, "training_config.output_dir")) a["save"] = nullptr;
       }},
      {"C14",
       [](const ArgumentInputs&, Json& a) {
         if (is_true(a, "moe_use_upcycling")) a["no_load_optim"] = a["no_load_rng"] = true;
       }},
      {"PAR24", [](const ArgumentInputs&, Json& a) {
         if (a.contains("replication_jump") && !is_true(a, "replication")) a["replication_jump"] = nullptr;
       }}};
  return all;
}

/// In the order of their validation.
std::vector<ArgumentRule> all_rules() {
  std::vector<ArgumentRule> all;
  for (const auto* part : {&parser_rules(), &model_rules(), &parallel_rules(), &run_rules()})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

}  // namespace

void validate_arguments(const recipe::Recipe& recipe, std::int64_t world, nlohmann::json& arguments) {
  if (recipe.resolved.at("model_config.num_attention_heads") == nullptr) return;  // Megatron's arguments are a GPT's
  const ArgumentInputs run{recipe, world, parallel::data_parallel_ranks(recipe.parallel, world)};
  for (const auto& rule : all_rules()) rule.apply(run, arguments);
}

std::vector<std::string> argument_rules() {
  std::vector<std::string> names;
  for (const auto& rule : all_rules()) names.emplace_back(rule.name);
  return names;
}

}  // namespace tessera::flags
