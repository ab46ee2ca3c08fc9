#include "framework/recipe/parallel_options.h"

namespace tessera {

void describe(Schema<ParallelOptions>& s) {
  using Number = std::optional<std::int64_t>;
  using Word = std::optional<std::string>;
  using Cuts = std::optional<std::vector<std::vector<std::int64_t>>>;
  const std::int64_t one = 1;

  s.planned("tensor_model_parallel_size", one, "Ranks that share each layer.");
  s.planned("pipeline_model_parallel_size", one, "Stages that the layers are cut into.");
  s.planned("context_parallel_size", one, "Ranks that share each sequence.");
  s.planned("expert_model_parallel_size", one, "Ranks that share the experts of a layer.");
  s.planned("data_parallel_size", one, "Ranks that read different samples; follows from the others.");
  s.planned("context_parallel_algo", std::string("ulysses_cp_algo"), "How ranks share a sequence.")
      .also("megatron_cp_algo")
      .also("hybrid_cp_algo");
  s.planned("ulysses_degree_in_cp", Number{}, "Ulysses' share of a hybrid context_parallel_size.").also(1);
  s.planned("virtual_pipeline_model_parallel_size", Number{}, "Chunks of layers on each stage.")
      .alias("virtual_pipeline_model_parallel_size_ms")
      .also(1);
  s.planned("num_layers_per_virtual_pipeline_stage", Number{}, "Layers of one chunk.");
  s.planned("sequence_parallel", false, "Ranks that share a layer also share its norms, token by token.").also(true);
  s.planned("num_layer_list", Cuts{},
            "Layers of each chunk, [stage][chunk]: the outer list has pipeline_model_parallel_size items.");
  s.planned("recompute", Cuts{}, "Layers of each chunk that are computed again in the backward pass, [stage][chunk].")
      .alias("recompute_config.recompute");
  s.planned("select_recompute", Cuts{}, "The same of attention alone, [stage][chunk].")
      .alias("recompute_config.select_recompute");
  s.planned("select_comm_recompute", Cuts{}, "The same of the gather of sequence_parallel, [stage][chunk].")
      .alias("recompute_config.select_comm_recompute");
  s.planned("recv_dtype", std::string("float32"), "Type of what stages send to each other.");
  s.planned("zero_level", Word{}, "What data parallel ranks share of the optimizer's state.");
  s.planned("standalone_embedding_stage", false, "The first stage has the embedding alone.");
  s.planned("overlap_grad_reduce", false, "The same as training_config.overlap_grad_reduce.");
  s.planned("gradient_accumulation_fusion", false, "Add weight gradients inside the product; always done here.")
      .also(true);
  s.planned("overlap_p2p_comm", true, "Stages compute while they send; there is one stage.").also(false);
  s.planned("use_cpu_initialization", false, "Draw whole weights, then cut them; draws never depend on the cut here.")
      .also(true);
  s.planned("deterministic_mode", false, "The same bits in every run; always so here.").also(true);
  s.planned("variable_seq_lengths", false, "Stages agree on shapes from batch to batch.");
}

}  // namespace tessera
