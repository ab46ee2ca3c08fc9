#include "tests/golden/refusals.h"

#include <vector>

namespace tessera::golden {
namespace {

using Json = nlohmann::json;

struct Known {
  const char* words;  ///< part of the message, or of the line where it stopped
  const char* rule;
};

/// Messages of Megatron-LM core_v0.12.1 and the rules they speak of.
const std::vector<Known>& known() {
  static const std::vector<Known> all = {{"global and local checkpoints", "C1"},
                                         {"legacy model format only supports the 'torch'", "M28"},
                                         {"is not divisible by total_model_size", "PAR1"},
                                         {"non-MOE encoder shares", "PAR2"},
                                         {"encoders with more TP than the decoder", "PAR2"},
                                         {"--attention-backend local", "M19"},
                                         {"assert args.spec[0]", "M19"},
                                         {"args.pipeline_model_parallel_size > 0", "D5"},
                                         {"prod(args.hierarchical_context_parallel_sizes)", "PAR4"},
                                         {"--hierarchical-context-parallel-sizes must be set", "PAR4"},
                                         {"--batch-size argument is no longer", "D1"},
                                         {"--warmup argument is no longer", "D1"},
                                         {"--model-parallel-size is no longer", "D1"},
                                         {"--checkpoint-activations is no longer", "D2"},
                                         {"args.data_args_path is None", "DAT2"},
                                         {"args.per_split_data_args_path is None", "DAT2"},
                                         {"args.micro_batch_size", "B1"},
                                         {"args.global_batch_size > 0", "B1"},
                                         {"cannot be set at the same time", "PAR6"},
                                         {"When interleaved schedule is used", "PAR6"},
                                         {"please use --num-virtual-stages-per-pipeline-rank", "PAR6"},
                                         {"must be divisible pipeline model parallel size", "PAR6"},
                                         {"must be divisible number of layers per virtual", "PAR6"},
                                         {"Number of layers should be divisible by the pipeline", "PAR6"},
                                         {"--overlap-param-gather-with-optimizer-step", "PAR17"},
                                         {"--overlap-param-gather", "PAR16"},
                                         {"--use-torch-fsdp2", "PAR18"},
                                         {"--fp8-param-gather", "M26"},
                                         {"--use-custom-fsdp", "PAR19"},
                                         {"are not supported with gradient accumulation fusion", "PAR19"},
                                         {"check_weight_hash_across_dp_replicas_interval", "PAR19"},
                                         {"assert not args.bf16", "MP1"},
                                         {"assert not args.fp16", "MP1"},
                                         {"--main-grads-dtype can only be fp32", "MP3"},
                                         {"num_dataset_builder_threads", "DAT7"},
                                         {"expected iteration-based", "B5"},
                                         {"expected no batch-size rampup", "B5"},
                                         {"lr-warmup-fraction and lr-warmup-iters", "B5"},
                                         {"expected sample-based", "B6"},
                                         {"can only specify one of lr-warmup-fraction", "B6"},
                                         {"num-layers or encoder-num-layers", "M1"},
                                         {"both num-layers and encoder-num-layers", "M1"},
                                         {"argument is None", "M2"},
                                         {"args.hidden_size % args.num_attention_heads", "M4"},
                                         {"multiple of 2 * context-parallel-size", "M7"},
                                         {"encoder_seq_length is", "M5"},
                                         {"max_position_embeddings", "M6"},
                                         {"args.min_lr <= args.lr", "O1"},
                                         {"args.save_interval is not None", "C3"},
                                         {"lm cross entropy in fp16", "MP6"},
                                         {"residual connection in fp32", "MP5"},
                                         {"GroupedGEMM", "MP7"},
                                         {"start_weight_decay", "O2"},
                                         {"end_weight_decay", "O2"},
                                         {"recomputed activations only across", "REC1"},
                                         {"distributed recompute activations", "REC1"},
                                         {"distribute_saved_activations", "REC1"},
                                         {"recompute method is not yet supported for", "REC2"},
                                         {"selective recompute_num_layers must be None", "REC2"},
                                         {"selective recompute_method must be None", "REC2"},
                                         {"recompute_method", "REC3"},
                                         {"recompute_num_layers", "REC3"},
                                         {"Invalid choices for recompute_modules", "REC4"},
                                         {"can happen only when sequence parallelism", "PAR10"},
                                         {"--decoupled-lr and --decoupled-min-lr", "M28"},
                                         {"--rotary-interleaved does not work", "M12"},
                                         {"--rotary-interleaved is not supported", "M28"},
                                         {"--no-position-embedding is deprecated", "D6"},
                                         {"attention bias-based position embeddings", "M13"},
                                         {"--mrope-section should be set", "M13"},
                                         {"Model Spec must be None", "MOE1"},
                                         {"Context parallelism is not supported in legacy", "M28"},
                                         {"num_experts must be non None", "MOE3"},
                                         {"should be a multiple of expert model parallel_size", "MOE3"},
                                         {"Expert parallelism is not supported with fp16", "MOE3"},
                                         {"--use-dist-ckpt is not supported in legacy", "M28"},
                                         {"--ckpt-format torch_dcp", "C4"},
                                         {"A single data source must be provided", "DAT3"},
                                         {"in deterministic mode", "DET1"},
                                         {"Cross Entropy Fusion is currently not deterministic", "DET1"},
                                         {"assert args.use_dist_ckpt", "PAR21"},
                                         {"--inference-batch-times-seqlen-threshold", "PAR23"},
                                         {"When using upcycling", "C14"},
                                         {"optimizer cpu offload", "O7"},
                                         {"Tried to use local checkpointing", "C1"},
                                         {"--replication requires", "PAR24"},
                                         {"legacy Megatron models does not support Multi-Token", "M28"},
                                         {"Multi-Token Prediction (MTP) is not supported", "M22"},
                                         {"precision_aware_optimizer", "O6"},
                                         {"precision-aware-optimizer", "O6"},
                                         {"_dtype can only be fp32", "O6"},
                                         // of the configuration
                                         {"num_attention_heads", "M8"},
                                         {"num_query_groups", "M8"},
                                         {"apply_rope_fusion", "M18"},
                                         {"rotary_interleaved", "M18"},
                                         {"Bias is not supported for MoE", "MOE4"},
                                         {"only supports sigmoid score function", "MOE10"},
                                         {"does not support permute fusion", "MOE9"},
                                         {"alltoall_seq", "MOE9"},
                                         {"fp8_param", "M26"},
                                         {"MXFP8", "M26"},
                                         {"first_last_layers_bf16", "M26"},
                                         {"num_layers_at_", "M26"},
                                         {"bias_activation_fusion", "M14"},
                                         {"activation function should be either gelu or swiglu", "M14"},
                                         {"defer_embedding_wgrad", "PAR7"},
                                         {"overlap_p2p_comm", "PAR7"},
                                         {"sequence parallelism must be used", "PAR7"},
                                         {"pipeline_model_parallel_size", "PAR8"},
                                         {"account_for", "PAR9"},
                                         {"moe_expert_capacity_factor", "MOE8"},
                                         {"moe_pad_expert_input_to_capacity", "MOE8"},
                                         {"moe_shared_expert", "MOE7"},
                                         {"group_topk", "MOE12"},
                                         {"moe_router_topk", "MOE11"},
                                         {"DeepEP", "MOE6"},
                                         {"CUDA graph", "REC7"},
                                         // of the size of a step
                                         {"--rampup-batch-size", "B3"},
                                         {"global batch size", "B2"}};
  return all;
}

std::set<std::string> rules_of(const std::string& words) {
  for (const auto& one : known())
    if (words.find(one.words) != std::string::npos) return {one.rule};
  return {};
}

std::optional<Refusal> refusal(const std::string& message, const std::string& where) {
  auto rules = rules_of(message);
  if (rules.empty()) rules = rules_of(where);
  return Refusal{message.empty() ? where : message, rules};
}

}  // namespace

std::optional<Refusal> refusal_in(const Json& row) {
  if (const auto there = row.find("refused"); there != row.end() && there->is_object())
    return refusal(there->value("message", ""), there->value("where", ""));
  for (const auto* stage : {"config", "microbatches"})
    if (const auto there = row.find(stage); there != row.end() && there->is_string())
      return refusal(there->get<std::string>(), "");
  return std::nullopt;
}

}  // namespace tessera::golden
