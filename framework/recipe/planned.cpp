#include "framework/recipe/planned.h"

namespace tessera {
namespace {

using Number = std::optional<std::int64_t>;
using Real = std::optional<double>;
using Text = std::optional<std::string>;
using Numbers = std::optional<std::vector<std::int64_t>>;
using Texts = std::optional<std::vector<std::string>>;

void describe_profile(Schema<PlannedTraining>& s) {
  s.planned("profile", false, "Record where time and memory go.");
  s.planned("profile_save_path", Text{}, "Where records are written.");
  s.planned("profile_step_start", std::int64_t{10}, "First step recorded.").also(1);
  s.planned("profile_step_end", std::int64_t{12}, "Last step recorded.").also(5);
  s.planned("profile_ranks", std::vector<std::int64_t>{0}, "Ranks that record.").also({});
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
  s.planned("attention_softmax_in_fp32", false, "Attention's softmax in fp32; always done here.").also(true);
  s.planned("apply_query_key_layer_scaling", false,
            "Divide scores by the number of the layer and multiply again in the softmax, against fp16's limits; scores "
            "are fp32 here.")
      .also(true);

  // How something is said or computed, not what: either word gives the same results.
  s.planned("use_rotary_position_embeddings", false, "Megatron-LM's older word for position_embedding_type: rope.")
      .also(true);
  s.planned("use_flash_attention", false, "Attention without storing scores; always done here.")
      .alias("use_flash_attn")
      .also(true);
  s.planned("apply_swiglu_fusion", false, "SwiGLU in one pass; always done here.").alias("use_fused_swiglu").also(true);
  s.planned("apply_rope_fusion", true, "Rotary positions in one pass; always done here.").also(false);
  s.planned("bias_swiglu_fusion", true, "SwiGLU in one pass, in Megatron-LM's words.").also(false);
  s.planned("bias_dropout_fusion", true, "Bias, dropout and residual in one pass.").also(false);
  s.planned("masked_softmax_fusion", true, "Mask and softmax in one pass.").also(false);
  s.planned("cross_entropy_loss_fusion", false, "Logits to losses in one pass; always done here.").also(true);
  s.planned("clone_scatter_output_in_embedding", true, "Copy the embedding's output.").also(false);
  s.planned("flatten_labels_and_input_mask", true, "The loss sees one long list of tokens.").also(false);
  s.planned("transformer_impl", std::string("transformer_engine"), "Whose layers compute; ours do.").also("local");
  s.planned("attention_backend", std::string("auto"), "Whose attention computes; ours does.")
      .also("flash")
      .also("fused")
      .also("unfused")
      .also("local");
  s.planned("mask_func_type", std::string("attn_mask_add"), "How scores are masked.").also("attn_mask_fill");
}

void describe_8_bits(Schema<PlannedModel>& s) {
  s.planned("fp8_format", Text{}, "8-bit arithmetic: e4m3 or hybrid.");
  s.planned("fp8_recipe", std::string("delayed"), "How 8-bit values are scaled.");
  s.planned("fp8_margin", std::int64_t{0}, "Spare powers of two in such a scale.");
  s.planned("fp8_amax_history_len", std::int64_t{1}, "Steps whose largest values a scale follows.");
  s.planned("fp8_amax_compute_algo", std::string("most_recent"), "Which of these values it follows.");
  s.planned("fp8_wgrad", true, "Gradients of weights in 8 bits too.");
  s.planned("fp8_param_gather", false, "Weights travel in 8 bits.");
  s.planned("first_last_layers_bf16", false, "The first and last layers are spared 8 bits.");
  s.planned("num_layers_at_start_in_bf16", std::int64_t{1}, "How many at the start.");
  s.planned("num_layers_at_end_in_bf16", std::int64_t{1}, "How many at the end.");
}

/// Latent attention: queries, keys and values come from narrow vectors.
void describe_latent_attention(Schema<PlannedModel>& s) {
  s.planned("multi_latent_attention", false, "Queries, keys and values come from narrow vectors.");
  s.planned("q_lora_rank", Number{}, "Width of that of queries; null: they have none.");
  s.planned("kv_lora_rank", std::int64_t{32}, "Width of that of keys and values.");
  s.planned("qk_head_dim", std::int64_t{128}, "Channels of a query or key that do not turn.");
  s.planned("qk_pos_emb_head_dim", std::int64_t{64}, "Channels of a query or key that turn.");
  s.planned("v_head_dim", std::int64_t{128}, "Channels of a value.");
  s.planned("rotary_scaling_factor", 1.0, "How much slower its slow rotary frequencies turn.");
  s.planned("mscale", 1.0, "Weight of that slowness in the size of scores.");
  s.planned("mscale_all_dim", 1.0, "The same for all channels.").also(0);
}

/// Models that are not one stack of equal layers, and what makes them.
void describe_shapes(Schema<PlannedModel>& s) {
  s.planned("add_position_embedding", true, "Learned positions; position_embedding_type says whether there are any.")
      .also(false);
  s.planned("mrope_section", Numbers{}, "Channels that turn with time, height and width.");
  s.planned("mtp_num_layers", Number{}, "Layers that predict tokens after the next one.").also(0);
  s.planned("mtp_loss_scaling_factor", 0.1, "Weight of their losses.");
  s.planned("heterogeneous_layers_config_path", Text{}, "File that says of each layer what it is.");
  s.planned("heterogeneous_layers_config_encoded_json", Text{}, "The same as text.");
  s.planned("spec", Texts{}, "Module of Python that says what a layer is made of.");
  s.planned("is_hybrid_model", false, "Layers of several kinds, which begin with other weights.");
}

/// Kinds of attention, activation and arithmetic of newer programs.
void describe_newer_layers(Schema<PlannedModel>& s) {
  s.planned("softmax_type", std::string("vanilla"), "Whether scores share their sum with one that no token has.");
  s.planned("qk_l2_norm", false, "Queries and keys of length one.");
  s.planned("qk_clip", false, "Weights of queries and keys shrink where scores grow.");
  s.planned("attention_output_gate", false, "What attention gives passes a gate.");
  s.planned("experimental_attention_variant", Text{}, "Attention of another kind: linear, or of few tokens.");
  s.planned("window_attn_skip_freq", Text{}, "Which layers see past window_size; layer_types says it here.");
  s.planned("no_rope_freq", Text{}, "Which layers turn nothing.");
  s.planned("rope_type", Text{}, "How latent attention turns.").also("rope");
  s.planned("glu_linear_offset", 0.0, "Added to the product that the gate multiplies.");
  s.planned("activation_func_clamp_value", Real{}, "Bound of what an activation takes.");
  s.planned("use_mup", false, "Weights and rates that keep their meaning as a model grows.");
  s.planned("enable_mhc_connections", false, "Several residual streams.");
  s.planned("hybrid_layer_pattern", Text{}, "The kind of each layer, a letter each.");
  s.planned("freeze_all_layers", false, "No weight changes.");
  s.planned("logit_dtype", Text{}, "Type of the logits; null: that of the model.");
  s.planned("fp4_format", Text{}, "4-bit arithmetic.");
  s.planned("te_precision_config_file", Text{}, "File that says which layers compute in how many bits.");
  s.planned("use_kitchen_attention", false, "Attention in fewer bits.");
  s.planned("kitchen_config_file", Text{}, "File that says which products are made in how many bits.");
  s.planned("kitchen_recipe_number", Number{}, "The same as a number.");
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

void describe_router(Schema<PlannedExperts>& s) {
  s.planned("moe_router_dtype", Text{}, "Type in which the router computes; null: that of the model.");
  s.planned("moe_router_score_function", std::string("softmax"), "How its logits become scores.");
  s.planned("moe_router_pre_softmax", false, "Softmax over all experts before the best are taken, not after.");
  s.planned("moe_router_num_groups", Number{}, "Groups that experts are parted into.");
  s.planned("moe_router_group_topk", Number{}, "How many groups a token may go to.");
  s.planned("moe_router_topk_scaling_factor", Real{}, "What the scores of those taken are multiplied by.");
  s.planned("moe_router_enable_expert_bias", false, "A bias for each expert, moved so that all are equally busy.");
  s.planned("moe_router_bias_update_rate", 0.001, "How far it is moved in a step.");
}

void describe_newer_experts(Schema<PlannedExperts>& s) {
  s.planned("moe_shared_expert_gate", false, "What the shared expert gives passes a gate.");
  s.planned("moe_enable_routing_replay", false, "Send tokens where they were sent before.");
  s.planned("moe_router_force_load_balancing", false, "Send tokens anywhere, equally: to measure speed.");
  s.planned("moe_router_force_biased", Real{}, "Send tokens anywhere, some experts more: to measure speed.");
  s.planned("moe_apply_probs_on_input", false, "Scores multiply what experts take, not what they give.");
  s.planned("moe_latent_size", Number{}, "Width that tokens have on their way to experts.");
  s.planned("moe_dispatch_fwd_dtype", std::string("bf16"), "Type of tokens on their way to experts.");
  s.planned("moe_combine_bwd_dtype", std::string("bf16"), "Type of gradients on that way.");
  s.planned("moe_expert_rank_capacity_factor", Real{}, "Most tokens of a rank, as a share of an equal split.");
}

/// What MindSpeed-LLM, Pai-Megatron-Patch and Megatron-LLM have besides.
void describe_variants(Schema<PlannedModel>& s) {
  s.planned("output_layer_has_bias", false, "A bias of the output projection.");
  s.planned("embed_layernorm", false, "A norm after the embedding.");
  s.planned("input_layernorm_in_fp32", false, "The norm before attention gives out fp32.");
  s.planned("rmsnorm_weight_in_fp32", false, "Gains of norms in fp32.");
  s.planned("use_post_ln", false, "Norms after attention and feed-forward only.");
  s.planned("embedding_multiplier", 1.0, "Embeddings are multiplied by it.");
  s.planned("output_multiplier", Real{}, "Logits are multiplied by it.");
  s.planned("scale_depth", Real{}, "Branches are multiplied by scale_depth / sqrt(num_layers).");
  s.planned("dim_model_base", Real{}, "What the output layer sees is divided by hidden_size / dim_model_base.");
  s.planned("swiglu_limit", 0.0, "Bound on both factors of swiglu; 0: none.");
  s.planned("lima_dropout", false, "hidden_dropout_rate grows from layer to layer.");
  s.planned("z_loss_weight", 0.0, "Weight of a loss that keeps logits small.");
  s.planned("cla_share_factor", std::int64_t{1}, "Neighbouring layers that share keys and values.");
  s.planned("share_kvstates", false, "They share them.");
  s.planned("enable_mhc", false, "Several residual streams that mix.");
  s.planned("full_attention_interval", std::int64_t{0},
            "Every so many layers look at all tokens, the rest are linear.");
  s.planned("use_moba_attn", false, "Attention to chosen blocks.");
  s.planned("enable_dsa_indexer", false, "Attention to chosen tokens.");
  s.planned("rope_dynamic_factor", 1.0, "Rotary positions slow down with the length of the text.");
  s.planned("use_glm_rope", false, "Rotary positions as GLM has them.");
  s.planned("use_partial_rope", false, "Rotary positions as ChatGLM3 has them.");
  s.planned("qat_scheme", Text{}, "Weights are rounded as they will be for inference.");
}

}  // namespace

void describe(Schema<PlannedTraining>& s) {
  s.planned("eval_metric", Text{}, "What is measured besides the loss.");
  s.planned("best_metric_comparison", Text{}, "Which measure is the better one.");
  s.planned("grad_clip_kwargs", Text{}, "Another way to clip gradients.");
  s.planned("check_for_spiky_loss", false, "Stop at a loss that is ten times the largest before it.");
  s.planned("check_for_large_grads", false, "Stop at a gradient that is much larger than those before it.");
  s.planned("result_rejected_tracker_filename", Text{}, "File with more iterations_to_skip.");
  s.planned("error_injection_rate", std::int64_t{0}, "Wrong results on purpose, one in so many steps.");
  s.planned("rerun_mode", std::string("disabled"),
            "Whether a result in doubt is computed again; a run stops at it here.")
      .also("validate_results")
      .also("report_stats");
  s.planned("skip_train", false, "Only evaluate.");
  s.planned("loss_reduction", std::string("mean"), "Gradients of ranks are averaged or summed.");

  s.planned("start_eval_at_iter", Number{}, "Step before which nothing is evaluated.");
  s.planned("eval_global_batch_size", Number{}, "Samples of a batch of evaluation; null: global_batch_size.");
  s.planned("eval_micro_batch_size", Number{}, "Samples of a micro-batch of evaluation; null: batch_size.");
  s.planned("logits_load_dir", Text{}, "What another model gave for the same samples, to learn from.");
  s.planned("load_main_params_from_ckpt", false, "Take fp32 weights from a checkpoint whose optimizer is not loaded.");
  s.planned("override_ckpt_iteration", Number{}, "Step to count from, instead of the checkpoint's.");
  s.planned("pretrained_checkpoint", Text{}, "Weights to begin with when load_checkpoint holds none.");
  s.planned("ckpt_step", Number{}, "Step of the checkpoint to load, instead of the newest.");
  s.planned("use_checkpoint_args", false, "Take the model's shape from the checkpoint.");
  s.planned("use_mp_args_from_checkpoint_args", false, "Take the cut from the checkpoint too.");
  s.planned("enable_compile_cache", false, "Keep compiled graphs; there are none here.").also(true);
  s.planned("compile_cache_path", Text{}, "Where compiled graphs are kept.");
  describe_profile(s);

  s.planned("stage", Text{},
            "Way to train in MindSpeed-LLM: sft is what dataset_type: instruction does anyway and needs that; dpo, "
            "ray_ppo and others train differently.")
      .also("sft");
  s.planned("qad_enable", false, "Learn from a teacher of full precision.");
  s.planned("load_checkpoint_loosely", false, "Pass over weights that the checkpoint lacks.");
  s.planned("calculate_per_sample_loss", false, "Every sample of a step has the same weight.");
  s.planned("train_tokens", Number{}, "Length of the run in tokens.");
}

void describe(Schema<PlannedModel>& s) {
  describe_compute(s);
  describe_8_bits(s);
  describe_attention(s);
  describe_latent_attention(s);
  describe_shapes(s);
  describe_newer_layers(s);
  describe_variants(s);
  s.planned("select_recompute", false, "Set for each layer by the cut of layers.");
  s.planned("select_comm_recompute", false, "Set for each layer by the cut of layers.");
  s.planned("distribute_saved_activations", false, "Ranks share what is kept for the backward pass.");

  s.planned("bias_init", std::string("zeros"), "How biases begin.");
  s.planned("out_hidden_size", Number{}, "Width that the feed-forward gives out.");
  s.planned("head_skip_weight_param_allocation", true, "The head has no weights of its own when they are tied.");
  s.planned("num_experts", Number{}, "Experts of a layer; moe_config has more.").also(0);

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

  s.planned("apply_wd_to_qk_layernorm", false, "The norms on queries and keys decay too.");
  const std::string fp32 = "fp32";
  s.planned("use_precision_aware_optimizer", false, "The four types that follow are read; all are fp32 here.")
      .also(true);
  s.planned("main_grads_dtype", fp32, "Type of the gradients that the optimizer reads.");
  s.planned("main_params_dtype", fp32, "Type of the weights that it keeps.");
  s.planned("exp_avg_dtype", fp32, "Type of its first moments.");
  s.planned("exp_avg_sq_dtype", fp32, "Type of its second moments.");
  s.planned("optimizer_selection", std::string("fused_adamw"), "Which program of AdamW runs.")
      .also("fused_torch_adamw");
  s.planned("use_ema", false, "Keep a running mean of the weights.");
  s.planned("o2_optimizer", false, "The optimizer's state in bfloat16.");
  s.planned("quant_states", Text{}, "The optimizer's state in 8 bits.");
  s.planned("quant_grads", false, "Gradients in few bits.");
  s.planned("lr_decay_tokens", Number{}, "Token at which min_lr is reached.");
  s.planned("lr_warmup_tokens", Number{}, "Length of the linear rise in tokens.").also(0);
}

void describe(Schema<PlannedDataset>& s) {
  s.planned("dataset_dir", Text{}, "Folder of data that is not given by a path.").also("./dataset");
  s.planned("shuffle", false, "Shuffle samples; the order of dataset_type gpt is always shuffled.");
  s.planned("step_batch_size_schedule", Text{}, "Batch sizes and the steps from which they hold.");
  s.planned("phase_transition_iterations", Text{}, "Steps at which other data begins.");
  s.planned("fim_data", false, "Samples whose middle is asked for last.");
  s.planned("data_layout", std::string("BSH"), "Order of dims of activations; ours is our own.").also("SBH");
  s.planned("drop_remainder", true, "Drop samples at the end that do not fill a batch.");
  s.planned("pad_token_id", Number{}, "Token that fills short samples.").also(0);
  s.planned("eos_token_id", Number{}, "Token that ends a document, when no tokenizer says it.").also(0);
  s.planned("is_pairwise_dataset", false, "Samples have an answer to take and one to leave.");
  s.planned("fix_sub_seq_length", std::int64_t{-1}, "reset_attention_mask: no token sees past so many others.");
  s.planned("fim_rate", 0.0, "Share of samples whose middle is asked for last.");
}

void describe(Schema<PlannedExperts>& s) {
  s.planned("num_experts", std::int64_t{1}, "Experts of a layer.");
  s.planned("moe_layer_freq", std::string("1"), "Which layers have experts: each n-th, or a list.");
  s.planned("moe_ffn_hidden_size", Number{}, "Inner width of an expert; null: ffn_hidden_size.");
  s.planned("moe_shared_expert_intermediate_size", Number{}, "Inner width of the expert that sees every token.");
  s.planned("moe_grouped_gemm", false, "All experts in one product; results do not change.").also(true);
  s.planned("moe_layer_recompute", false, "Compute experts again in the backward pass.");
  s.planned("moe_use_upcycling", false, "Begin with the weights of a model without experts.");
  s.planned("moe_router_topk", std::int64_t{2}, "Experts that each token is sent to.");
  s.planned("moe_router_load_balancing_type", std::string("aux_loss"), "What keeps experts equally busy.").also("none");
  s.planned("moe_token_dispatcher_type", std::string("allgather"),
            "How tokens travel to experts; results do not change.")
      .also("alltoall")
      .also("alltoall_seq")
      .also("flex");
  s.planned("use_self_defined_alltoall", false, "That exchange built from single messages.");
  s.planned("moe_expert_capacity_factor", Real{}, "Most tokens of an expert, as a share of an equal split.");
  s.planned("moe_pad_expert_input_to_capacity", false, "Fill every expert's input to that size.");
  s.planned("moe_token_drop_policy", std::string("probs"), "Which tokens are dropped when there are more.");
  s.planned("moe_aux_loss_coeff", 0.0, "Weight of the loss that balances.");
  s.planned("moe_z_loss_coeff", Real{}, "Weight of the loss that keeps the router's logits small.");
  s.planned("moe_input_jitter_eps", Real{}, "Noise on what the router sees.");
  describe_router(s);
  describe_newer_experts(s);
}

void describe(Schema<PlannedAdapters>& s) {
  s.planned("use_lora", false, "Train low-rank adapters alone.");
  s.planned("lora_rank", std::int64_t{8}, "Rank of an adapter.");
  s.planned("lora_alpha", std::int64_t{32}, "An adapter is scaled by lora_alpha / lora_rank.");
  s.planned("lora_dropout", 0.0, "Share dropped before an adapter.");
  s.planned("target_cells", Texts{}, "Layers that have adapters.");
  s.planned("qlora", false, "The weights beside adapters in 4 bits.");
}

}  // namespace tessera
