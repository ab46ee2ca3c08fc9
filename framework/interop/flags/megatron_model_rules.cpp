#include <algorithm>

#include "framework/interop/flags/megatron_rule_lists.h"

// Rules of the model, of recomputation, experts and 8-bit arithmetic.

namespace tessera::flags {
namespace {

using A = AskedFlags;

bool names_module(const A& a, const char* module) {
  const auto words = a.words("--recompute-modules");
  return a.recomputation() == "selective" && std::find(words.begin(), words.end(), module) != words.end();
}

bool names_unknown_module(const A& a) {
  const auto words = a.words("--recompute-modules");
  const RuleFlags known = {"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"};
  return a.recomputation() == "selective" && std::any_of(words.begin(), words.end(), [&](const auto& word) {
           return std::find(known.begin(), known.end(), word) == known.end();
         });
}

bool has_too_few_positions(const A& a, const char* length, std::int64_t otherwise) {
  return a.has("--max-position-embeddings") && a.number("--max-position-embeddings", 0) < a.number(length, otherwise);
}

std::vector<MegatronRule> sizes() {
  return {
      required("M1", {"--num-layers", "--encoder-num-layers"}),
      exclusive("M1", {"--encoder-num-layers", "--num-layers"}),
      required("M2", {"--hidden-size"}),
      required("M2", {"--num-attention-heads"}),
      required("M2", {"--max-position-embeddings"}),
      required("M5", {"--seq-length", "--encoder-seq-length"}),
      exclusive("M5", {"--seq-length", "--encoder-seq-length"}),
      rule(
          "M6", {"--max-position-embeddings", "--seq-length", "--encoder-seq-length"},
          "the maximum sequence length of the position embedding is below that of the samples; Megatron-LM checks this "
          "for every type of position embedding",
          "raise --max-position-embeddings",
          [](const A& a) { return has_too_few_positions(a, "--seq-length", a.number("--encoder-seq-length", 0)); }),
      rule("M6", {"--decoder-seq-length", "--max-position-embeddings"},
           "--decoder-seq-length is above --max-position-embeddings", "raise --max-position-embeddings",
           [](const A& a) { return has_too_few_positions(a, "--decoder-seq-length", 0); }),
      rule("M7", {"--seq-length", "--context-parallel-size"},
           "--seq-length is not divisible by twice --context-parallel-size", "make it a multiple",
           [](const A& a) { return a.context() > 1 && a.number("--seq-length", 0) % (2 * a.context()) != 0; }),
      rule("M8", {"--num-query-groups", "--tensor-model-parallel-size"},
           "--num-query-groups is not divisible by --tensor-model-parallel-size", "change one of them", [](const A& a) {
             return a.has("--group-query-attention") && a.number("--num-query-groups", 1) % a.tensor() != 0;
           })};
}

std::vector<MegatronRule> layers() {
  return {
      needs("M12", "--rotary-interleaved", {"--no-rope-fusion"}),
      rule("M13", {"--transformer-impl", "--position-embedding-type"},
           "--position-embedding-type relative needs --transformer-impl transformer_engine",
           "choose another --position-embedding-type",
           [](const A& a) {
             return a.positions() == "relative" &&
                    a.word("--transformer-impl", "transformer_engine") != "transformer_engine";
           }),
      rule("M13", {"--position-embedding-type", "--mrope-section"},
           "--position-embedding-type mrope needs --mrope-section, the dimensions of each axis", "give --mrope-section",
           [](const A& a) { return a.positions() == "mrope" && !a.has("--mrope-section"); }),
      rule("D6", {"--no-position-embedding", "--position-embedding-type"},
           "--no-position-embedding is deprecated and valid only with rotary embedding",
           "give --position-embedding-type none",
           [](const A& a) { return a.has("--no-position-embedding") && a.positions() != "rope"; }),
      exclusive("M14", {"--squared-relu", "--swiglu"}),
      rule("M14", {"--squared-relu", "--no-bias-gelu-fusion", "--disable-bias-linear"},
           "the fusion of bias and activation supports only GELU and SwiGLU, not --squared-relu",
           "give --no-bias-gelu-fusion too",
           [](const A& a) {
             return a.has("--squared-relu") && !a.any({"--swiglu", "--no-bias-gelu-fusion", "--disable-bias-linear"});
           }),
      rule("M18", {"--multi-latent-attention", "--no-rope-fusion"},
           "--multi-latent-attention does not support the fused rotary embedding", "give --no-rope-fusion too",
           [](const A& a) { return a.has("--multi-latent-attention") && a.rotary_fusion(); }),
      rule("M19", {"--attention-backend", "--spec"}, "--attention-backend local needs --spec local",
           "give both or neither",
           [](const A& a) { return a.word("--attention-backend") == "local" && a.word("--spec") != "local"; }),
      rule("M22", {"--mtp-num-layers", "--context-parallel-size"},
           "multi-token prediction is incompatible with context parallelism", "leave one of them out",
           [](const A& a) { return a.number("--mtp-num-layers", 0) > 0 && a.context() > 1; }),
      rule("M26", {"--fp8-param-gather", "--use-distributed-optimizer"},
           "--fp8-param-gather needs --use-distributed-optimizer or --use-torch-fsdp2",
           "give --use-distributed-optimizer",
           [](const A& a) {
             return a.has("--fp8-param-gather") && !a.any({"--use-distributed-optimizer", "--use-torch-fsdp2"});
           }),
      needs("M26", "--fp8-param-gather", {"--fp8-format"}),
      rule("M26", {"--fp8-param-gather", "--fp8-recipe"}, "--fp8-param-gather is incompatible with --fp8-recipe mxfp8",
           "leave it out",
           [](const A& a) {
             return a.has("--fp8-param-gather") && a.has("--fp8-format") && a.word("--fp8-recipe") == "mxfp8";
           }),
      rule("M26", {"--first-last-layers-bf16", "--fp8-recipe"},
           "--first-last-layers-bf16 is incompatible with --fp8-recipe delayed", "choose another --fp8-recipe",
           [](const A& a) {
             return a.has("--first-last-layers-bf16") && a.has("--fp8-format") &&
                    a.word("--fp8-recipe", "delayed") == "delayed";
           }),
      rule("M28", {"--ckpt-format", "--use-legacy-models"}, "--use-legacy-models needs --ckpt-format torch",
           "give it, or leave --use-legacy-models out",
           [](const A& a) { return a.has("--use-legacy-models") && a.distributed_checkpoint(); }),
      rule("M28", {"--use-legacy-models"},
           "--use-legacy-models is incompatible with --overlap-param-gather, --decoupled-lr, --decoupled-min-lr, "
           "--rotary-interleaved, --mtp-num-layers and --context-parallel-size above 1",
           "leave --use-legacy-models out", [](const A& a) {
             return a.has("--use-legacy-models") &&
                    (a.any({"--overlap-param-gather", "--decoupled-lr", "--decoupled-min-lr", "--rotary-interleaved",
                            "--mtp-num-layers"}) ||
                     a.context() > 1);
           })};
}

std::vector<MegatronRule> recomputation() {
  return {
      rule(
          "REC1", {"--distribute-saved-activations", "--tensor-model-parallel-size", "--recompute-granularity"},
          "--distribute-saved-activations needs --tensor-model-parallel-size above 1, --recompute-granularity full and "
          "--recompute-method, and is incompatible with --sequence-parallel",
          "leave it out",
          [](const A& a) {
            return a.has("--distribute-saved-activations") && (a.tensor() < 2 || a.recomputation() != "full" ||
                                                               !a.has("--recompute-method") || a.sequence_parallel());
          }),
      rule("REC4", {"--recompute-modules"}, "--recompute-modules names an unknown module",
           "choose from core_attn, moe_act, layernorm, mla_up_proj, mlp, moe", names_unknown_module),
      rule("REC5", {"--recompute-modules", "--moe-grouped-gemm"},
           "--recompute-modules moe_act needs --moe-grouped-gemm", "leave moe_act out",
           [](const A& a) { return names_module(a, "moe_act") && !a.has("--moe-grouped-gemm"); }),
      rule("REC7", {"--enable-cuda-graph", "--recompute-granularity", "--external-cuda-graph"},
           "--enable-cuda-graph is incompatible with recomputation and with --external-cuda-graph", "leave it out",
           [](const A& a) {
             return a.has("--enable-cuda-graph") && (!a.recomputation().empty() || a.has("--external-cuda-graph"));
           })};
}

std::vector<MegatronRule> experts() {
  return {
      rule("MOE1", {"--spec", "--num-experts"}, "--spec is incompatible with experts", "leave it out",
           [](const A& a) { return a.experts() != 0 && a.has("--spec"); }),
      rule("MOE6", {"--moe-enable-deepep", "--moe-token-dispatcher-type"},
           "--moe-enable-deepep needs --moe-token-dispatcher-type flex", "give both or neither",
           [](const A& a) { return a.has("--moe-enable-deepep") && a.word("--moe-token-dispatcher-type") != "flex"; }),
      rule("MOE6", {"--moe-pad-expert-input-to-capacity", "--moe-token-dispatcher-type"},
           "--moe-token-dispatcher-type flex does not support padding to the capacity",
           "leave --moe-pad-expert-input-to-capacity out",
           [](const A& a) {
             return a.word("--moe-token-dispatcher-type") == "flex" && a.has("--moe-pad-expert-input-to-capacity");
           }),
      rule("MOE7", {"--moe-shared-expert-overlap", "--moe-token-dispatcher-type"},
           "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall",
           "give it, or leave --moe-shared-expert-overlap out",
           [](const A& a) {
             return a.has("--moe-shared-expert-overlap") && a.has("--moe-shared-expert-intermediate-size") &&
                    a.word("--moe-token-dispatcher-type", "allgather") != "alltoall";
           }),
      rule("MOE9", {"--moe-permute-fusion", "--moe-token-dispatcher-type"},
           "--moe-token-dispatcher-type alltoall_seq does not support --moe-permute-fusion",
           "leave --moe-permute-fusion out", [](const A& a) {
             return a.has("--moe-permute-fusion") && a.word("--moe-token-dispatcher-type") == "alltoall_seq";
           })};
}

}  // namespace

const std::vector<MegatronRule>& megatron_model_rules() {
  static const auto all = one_list({sizes(), layers(), recomputation(), experts()});
  return all;
}

}  // namespace tessera::flags
