#include "framework/interop/megatron/megatron_arguments.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "framework/interop/tables/config_table.h"

namespace tessera::megatron {
namespace {

/// What Megatron-LM looks at when it loads, beside what the table says.
void add_fixed_arguments(Json& args, const checkpoint::Progress& progress, DType type,
                         const checkpoint::CheckpointLayout& layout) {
  const auto stages = layout.stages();
  const auto chunks = layout.layers.empty() ? std::size_t{1} : layout.layers[0].size();
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"tensor_model_parallel_size", layout.tensor},
           {"pipeline_model_parallel_size", stages},
           {"transformer_pipeline_model_parallel_size", stages},
           {"virtual_pipeline_model_parallel_size", chunks > 1 ? Json(chunks) : Json(nullptr)},
           {"context_parallel_size", 1},
           {"expert_model_parallel_size", layout.expert},
           {"expert_tensor_parallel_size", layout.sharers_of_expert()},
           {"data_parallel_size", layout.data},
           {"world_size", layout.tensor * stages * layout.data},
           {"data_parallel_random_init", false},
           {"use_distributed_optimizer", layout.distributed_optimizer},
           {"overlap_grad_reduce", false},
           {"ddp_bucket_size", nullptr},
           {"ddp_num_buckets", nullptr},
           {"ckpt_format", "torch"},
           {"use_dist_ckpt", false},
           {"add_position_embedding", true},
           {"consumed_train_samples", progress.consumed_samples},
           {"skipped_train_samples", progress.skipped_samples},
           {"consumed_valid_samples", std::max<std::int64_t>(progress.consumed_valid_samples, 0)},
           {"tessera_sample_chain", progress.sample_chain},  // Megatron-LM ignores arguments that it does not know
           {"tessera_order_stride", progress.order_stride},
           {"padded_vocab_size", layout.vocabulary},
           {"bf16", type == DType::bfloat16},
           {"fp16", type == DType::float16}})
    args[name] = value;
  if (progress.global_batch_size > 0) args["global_batch_size"] = progress.global_batch_size;
}

/// Megatron-LM compares these with its own when it loads, and fails if they are not there.
void add_compared_arguments(Json& args, const options::Value& recipe) {
  for (const auto& [name, option] :
       {std::pair("tokenizer_type", "dataset_config.tokenizer_type"),
        std::pair("make_vocab_size_divisible_by", "model_config.make_vocab_size_divisible_by")})
    if (const auto* value = recipe.at(option); value != nullptr && !value->scalar.empty())
      args[name] = name == std::string("tokenizer_type") ? Json(value->scalar) : read_json(value->scalar);
  if (!args.contains("max_position_embeddings") && args.contains("seq_length"))
    args["max_position_embeddings"] = Json(args["seq_length"]);
}

Json arguments_of(const options::Value& recipe, const options::Mappings& mappings) {
  return read_json(
      tables::write_by_table(recipe, mappings.table("arguments/megatron.yaml"), "checkpoint of Megatron-LM"));
}

}  // namespace

Json megatron_arguments(const checkpoint::ForeignSave& save) {
  auto args = arguments_of(save.recipe, save.mappings);
  add_fixed_arguments(args, save.progress, save.type, save.layout);
  add_compared_arguments(args, save.recipe);
  return args;
}

bool has_decoupled_rate(const Json& arguments) {
  const auto* rate = arguments.find("decoupled_lr");
  return rate != nullptr && rate->is_number();
}

options::Value recipe_of_arguments(const Json& arguments, const std::string& speaker,
                                   const options::Mappings& mappings) {
  const auto table = mappings.table("arguments/megatron.yaml");
  return tables::read_by_table(arguments.dump(), speaker, table, nullptr, mappings.ignored_keys()).ours;
}

}  // namespace tessera::megatron
