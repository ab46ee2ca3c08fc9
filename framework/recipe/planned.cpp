#include "framework/recipe/planned.h"

namespace tessera {
namespace {

using Number = std::optional<std::int64_t>;
using Real = std::optional<double>;
using Text = std::optional<std::string>;
using Texts = std::optional<std::vector<std::string>>;

void describe_profile(Schema<PlannedTraining>& s) {
  s.planned("profile", false, "Record where time and memory go.");
  s.planned("profile_save_path", Text{}, "Where records are written.");
  s.planned("profile_step_start", std::int64_t{1}, "First step recorded.");
  s.planned("profile_step_end", std::int64_t{5}, "Last step recorded.");
  s.planned("profile_level", std::string("level0"), "How much detail.");
  s.planned("profile_with_stack", false, "Record call stacks.");
  s.planned("profile_memory", false, "Record memory.").alias("profile_with_memory");
  s.planned("profile_framework", std::string("all"), "Record the framework's own work.");
  s.planned("profile_communication", false, "Record messages.");
  s.planned("profile_parallel_strategy", false, "Write down how the run is cut.");
  s.planned("profile_aicore_metrics", std::int64_t{0}, "Set of hardware counters.");
  s.planned("profile_l2_cache", false, "Record cache counters.");
  s.planned("profile_hbm_ddr", false, "Record memory bandwidth.");
  s.planned("profile_pcie", false, "Record bus traffic.");
  s.planned("profile_data_process", false, "Record the reading of data.");
  s.planned("profile_data_simplification", false, "Delete raw records after they are summed up.");
  s.planned("profile_op_time", true, "Record the time of each operation.");
  s.planned("profile_offline_analyse", false, "Only collect, sum up later.");
  s.planned("profile_dynamic_profiler_config_path", Text{}, "File that switches recording while the run goes.")
      .also("");
}

void describe_compute(Schema<PlannedModel>& s) {
  const std::string fp32 = "float32";
  s.planned("softmax_compute_dtype", fp32, "Type in which attention's softmax computes.");
  s.planned("attention_softmax_in_fp32", true, "Attention's softmax in fp32; always done here.").also(false);
  s.planned("fp8_format", Text{}, "8-bit arithmetic.");
  s.planned("apply_query_key_layer_scaling", false,
            "Divide scores by the number of the layer and multiply again in the softmax, against fp16's limits; scores "
            "are fp32 here.")
      .also(true);

  // How something is computed, not what: either word gives the same results.
  s.planned("use_flash_attention", false, "Attention without storing scores; always done here.")
      .alias("use_flash_attn")
      .also(true);
  s.planned("apply_swiglu_fusion", false, "SwiGLU in one pass; always done here.").alias("use_fused_swiglu").also(true);
  s.planned("apply_rope_fusion", false, "Rotary positions in one pass; always done here.").also(true);
  s.planned("bias_dropout_fusion", false, "Bias, dropout and residual in one pass.").also(true);
  s.planned("masked_softmax_fusion", false, "Mask and softmax in one pass.").also(true);
  s.planned("clone_scatter_output_in_embedding", false, "Copy the embedding's output.").also(true);
  s.planned("flatten_labels_and_input_mask", true, "The loss sees one long list of tokens.").also(false);
  s.planned("transformer_impl", std::string("local"), "Whose layers compute; ours do.").also("transformer_engine");
  s.planned("mask_func_type", std::string("attn_mask_add"), "How scores are masked.").also("attn_mask_fill");
}

void describe_attention(Schema<PlannedModel>& s) {
  s.planned("attention_type", std::string("self_attn"), "What a token looks at.");
  s.planned("fa_config.input_layout", Text{}, "Order of dims inside attention; ours is our own.")
      .alias("shape_order")
      .also("SBH")
      .also("BSH")
      .also("BSND")
      .also("BNSD");
  s.planned("fa_config.keep_prob", Real{}, "One less the dropout of attention.");
  s.planned("fa_config.sparse_mode", Number{},
            "Which blocks of scores are left out; those that nobody sees always are.")
      .also(0)
      .also(2)
      .also(3)
      .also(4);
  s.planned("enable_flash_sp", false, "A form of ring attention.");
  s.planned("rope_scaling_mscale", 1.0, "yarn: weight of rope_scaling_factor in the size of cosines and sines.");
  s.planned("rope_scaling_mscale_all_dim", 0.0, "yarn: the same for all channels.");
  s.planned("use_query_layer", false, "One more layer that asks.");
  s.planned("parallel_position_embedding", false, "Ranks share the learned positions.");
}

}  // namespace

void describe(Schema<PlannedTraining>& s) {
  s.planned("eval_metric", Text{}, "What is measured besides the loss.");
  s.planned("best_metric_comparison", Text{}, "Which measure is the better one.");
  s.planned("grad_clip_kwargs", Text{}, "Another way to clip gradients.");
  s.planned("loss_reduction", std::string("mean"), "Gradients of ranks are averaged or summed.");

  s.planned("new_dataset", false, "Go on from a checkpoint with data from the beginning.");
  s.planned("enable_compile_cache", false, "Keep compiled graphs; there are none here.").also(true);
  s.planned("compile_cache_path", Text{}, "Where compiled graphs are kept.");
  describe_profile(s);
}

void describe(Schema<PlannedModel>& s) {
  describe_compute(s);
  describe_attention(s);
  s.planned("select_recompute", false, "Set for each layer by the cut of layers.");
  s.planned("select_comm_recompute", false, "Set for each layer by the cut of layers.");
  s.planned("distribute_saved_activations", false, "Ranks share what is kept for the backward pass.");

  s.planned("bias_init", std::string("zeros"), "How biases begin.");
  s.planned("out_hidden_size", Number{}, "Width that the feed-forward gives out.");
  s.planned("head_skip_weight_param_allocation", true, "The head has no weights of its own when they are tied.");
  s.planned("num_experts", Number{}, "Experts of a layer; moe_config has more.");

  s.planned("encoder_num_layers", Number{}, "Layers of an encoder.");
  s.planned("decoder_num_layers", Number{}, "Layers of its decoder.");
  s.planned("use_visual_encoder", false, "Images as input.");
  s.planned("use_retriever", false, "Texts that are looked up as input.");
  s.planned("retro_add_retriever", false, "The same in Megatron-LM's words.");
}

void describe(Schema<PlannedOptimizer>& s) {
  s.planned("learning_rate_scheduler_kwargs", Text{}, "Another way to give a schedule.");
  s.planned("weight_decay_kwargs", Text{}, "Another way to give weight decay.");
  s.planned("zero_config", Text{}, "How data parallel ranks share the optimizer's state.");
}

void describe(Schema<PlannedDataset>& s) {
  s.planned("dataset_dir", Text{}, "Folder of data that is not given by a path.").also("./dataset");
  s.planned("shuffle", false, "Shuffle samples; the order of dataset_type gpt is always shuffled.");
  s.planned("data_layout", std::string("BSH"), "Order of dims of activations; ours is our own.").also("SBH");
  s.planned("drop_remainder", true, "Drop samples at the end that do not fill a batch.");
  s.planned("pad_token_id", Number{}, "Token that fills short samples.").also(0);
  s.planned("eos_token_id", Number{}, "Token that ends a document, when no tokenizer says it.").also(0);
  s.planned("is_instruction_dataset", false, "Samples are instructions and answers.");
}

void describe(Schema<PlannedExperts>& s) {
  s.planned("num_experts", std::int64_t{1}, "Experts of a layer.");
  s.planned("moe_grouped_gemm", false, "All experts in one product.");
  s.planned("moe_router_topk", std::int64_t{2}, "Experts that each token is sent to.");
  s.planned("moe_router_load_balancing_type", std::string("none"), "What keeps experts equally busy.");
  s.planned("moe_token_dispatcher_type", std::string("alltoall"), "How tokens travel to experts.");
  s.planned("use_self_defined_alltoall", false, "That exchange built from single messages.");
  s.planned("moe_expert_capacity_factor", Real{}, "Most tokens of an expert, as a share of an equal split.");
  s.planned("moe_pad_expert_input_to_capacity", false, "Fill every expert's input to that size.");
  s.planned("moe_token_drop_policy", std::string("probs"), "Which tokens are dropped when there are more.");
  s.planned("moe_aux_loss_coeff", 0.0, "Weight of the loss that balances.");
  s.planned("moe_z_loss_coeff", Real{}, "Weight of the loss that keeps the router's logits small.");
  s.planned("moe_input_jitter_eps", Real{}, "Noise on what the router sees.");
}

void describe(Schema<PlannedAdapters>& s) {
  s.planned("use_lora", false, "Train low-rank adapters alone.");
  s.planned("lora_rank", std::int64_t{8}, "Rank of an adapter.");
  s.planned("lora_alpha", std::int64_t{32}, "An adapter is scaled by lora_alpha / lora_rank.");
  s.planned("lora_dropout", 0.0, "Share dropped before an adapter.");
  s.planned("target_cells", Texts{}, "Layers that have adapters.");
}

}  // namespace tessera
