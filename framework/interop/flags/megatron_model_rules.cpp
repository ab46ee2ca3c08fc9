#include <algorithm>

#include "framework/interop/flags/megatron_rule_lists.h"

// Rules of the model, of recomputation, experts and 8-bit arithmetic.

namespace tessera::flags {
namespace {

using A = AskedFlags;

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<MegatronRule> sizes() {
  return {{"M1",
           {"--num-layers", "--encoder-num-layers"},
           [](const A& a) {
             return !a.any({"--num-layers", "--encoder-num-layers"});
           },
           "nothing says how many layers there are",
           "give --num-layers"},
          {"M1",
           {"--encoder-num-layers", "--num-layers"},
           [](const A& a) { return a.has("--num-layers") && a.has("--encoder-num-layers"); },
           "the number of layers is given twice",
           "keep --num-layers"},
          {"M2",
           {"--hidden-size"},
           [](const A& a) { return !a.has("--hidden-size"); },
           "--hidden-size is missing",
           "give it"},
          {"M2",
           {"--num-attention-heads"},
           [](const A& a) { return !a.has("--num-attention-heads"); },
           "--num-attention-heads is missing",
           "give it"},
          {"M2",
           {"--max-position-embeddings"},
           [](const A& a) { return !a.has("--max-position-embeddings"); },
           "--max-position-embeddings is missing",
           "give it, usually as --seq-length"},
          {"M4",
           {"--num-attention-heads", "--hidden-size"},
           [](const A& a) {
             const auto heads = a.number("--num-attention-heads", 0);
             return !a.has("--kv-channels") && heads > 0 && a.number("--hidden-size", 0) % heads != 0;
           },
           "--num-attention-heads does not divide --hidden-size",
           "change one, or give --kv-channels"},
          {"M5",
           {"--seq-length", "--encoder-seq-length"},
           [](const A& a) { return a.has("--seq-length") == a.has("--encoder-seq-length"); },
           "one of --seq-length and --encoder-seq-length has to be given",
           "give --seq-length alone"},
          {"M6",
           {"--max-position-embeddings", "--seq-length", "--encoder-seq-length"},
           [](const A& a) {
             return a.has("--max-position-embeddings") &&
                    a.number("--max-position-embeddings", 0) <
                        a.number("--seq-length", a.number("--encoder-seq-length", 0));
           },
           "there are fewer positions than tokens in a sequence, and it counts them whatever their type",
           "raise --max-position-embeddings"},
          {"M6",
           {"--decoder-seq-length", "--max-position-embeddings"},
           [](const A& a) {
             return a.has("--max-position-embeddings") &&
                    a.number("--max-position-embeddings", 0) < a.number("--decoder-seq-length", 0);
           },
           "there are fewer positions than tokens in a decoder's sequence",
           "raise --max-position-embeddings"},
          {"M7",
           {"--seq-length", "--context-parallel-size"},
           [](const A& a) { return a.context() > 1 && a.number("--seq-length", 0) % (2 * a.context()) != 0; },
           "ranks that share a sequence need two equal parts of it each",
           "make --seq-length a multiple of twice their number"},
          {"M8",
           {"--num-attention-heads", "--tensor-model-parallel-size"},
           [](const A& a) { return a.number("--num-attention-heads", 0) % a.tensor() != 0; },
           "--tensor-model-parallel-size does not divide --num-attention-heads",
           "change one of them"},
          {"M8",
           {"--num-query-groups", "--tensor-model-parallel-size"},
           [](const A& a) {
             return a.has("--group-query-attention") && a.number("--num-query-groups", 1) % a.tensor() != 0;
           },
           "--tensor-model-parallel-size does not divide --num-query-groups",
           "change one of them"}};
}

std::vector<MegatronRule> layers() {
  return {{"M12",
           {"--rotary-interleaved", "--no-rope-fusion"},
           [](const A& a) { return a.has("--rotary-interleaved") && !a.has("--no-rope-fusion"); },
           "--rotary-interleaved has no fused form",
           "give --no-rope-fusion too"},
          {"M13",
           {"--transformer-impl", "--position-embedding-type"},
           [](const A& a) {
             return a.positions() == "relative" &&
                    a.word("--transformer-impl", "transformer_engine") != "transformer_engine";
           },
           "relative positions need --transformer-impl transformer_engine",
           "choose another --position-embedding-type"},
          {"M13",
           {"--position-embedding-type", "--mrope-section"},
           [](const A& a) { return a.positions() == "mrope" && !a.has("--mrope-section"); },
           "mrope does not know how channels are shared out",
           "give --mrope-section"},
          {"D6",
           {"--no-position-embedding", "--position-embedding-type"},
           [](const A& a) { return a.has("--no-position-embedding") && a.positions() != "rope"; },
           "--no-position-embedding is an old word",
           "give --position-embedding-type none"},
          {"M14",
           {"--squared-relu", "--swiglu"},
           [](const A& a) { return a.has("--squared-relu") && a.has("--swiglu"); },
           "two activations are given",
           "keep one of --squared-relu and --swiglu"},
          {"M14",
           {"--squared-relu", "--no-bias-gelu-fusion", "--disable-bias-linear"},
           [](const A& a) {
             return a.has("--squared-relu") && !a.has("--swiglu") &&
                    !a.any({"--no-bias-gelu-fusion", "--disable-bias-linear"});
           },
           "the fused bias and activation is for GELU alone",
           "give --no-bias-gelu-fusion too"},
          {"M18",
           {"--multi-latent-attention", "--no-rope-fusion"},
           [](const A& a) { return a.has("--multi-latent-attention") && a.rotary_fusion(); },
           "--multi-latent-attention has no fused rotary positions",
           "give --no-rope-fusion too"},
          {"M18",
           {"--multi-latent-attention", "--rotary-interleaved"},
           [](const A& a) { return a.has("--multi-latent-attention") && a.has("--rotary-interleaved"); },
           "--multi-latent-attention does not turn neighbouring channels",
           "leave --rotary-interleaved out"},
          {"M19",
           {"--attention-backend", "--spec"},
           [](const A& a) { return a.word("--attention-backend") == "local" && a.word("--spec") != "local"; },
           "--attention-backend local needs --spec local",
           "give both or neither"},
          {"M22",
           {"--mtp-num-layers", "--context-parallel-size"},
           [](const A& a) { return a.number("--mtp-num-layers", 0) > 0 && a.context() > 1; },
           "predicting several tokens does not go with ranks that share a sequence",
           "leave one of them out"},
          {"M22",
           {"--mtp-num-layers", "--position-embedding-type"},
           [](const A& a) {
             return a.number("--mtp-num-layers", 0) > 0 && !is_one_of(a.positions(), {"rope", "none"});
           },
           "predicting several tokens needs rotary positions or none",
           "give --position-embedding-type rope"},
          {"M26",
           {"--fp8-param-gather", "--use-distributed-optimizer"},
           [](const A& a) {
             return a.has("--fp8-param-gather") && !a.any({"--use-distributed-optimizer", "--use-torch-fsdp2"});
           },
           "--fp8-param-gather needs ranks that share the optimizer's state",
           "give --use-distributed-optimizer"},
          {"M26",
           {"--fp8-param-gather", "--fp8-format"},
           [](const A& a) { return a.has("--fp8-param-gather") && !a.has("--fp8-format"); },
           "--fp8-param-gather needs 8-bit arithmetic",
           "give --fp8-format, or leave it out"},
          {"M26",
           {"--fp8-param-gather", "--fp8-recipe"},
           [](const A& a) {
             return a.has("--fp8-param-gather") && a.has("--fp8-format") && a.word("--fp8-recipe") == "mxfp8";
           },
           "--fp8-param-gather does not go with mxfp8",
           "leave it out"},
          {"M26",
           {"--first-last-layers-bf16", "--fp8-recipe"},
           [](const A& a) {
             return a.has("--first-last-layers-bf16") && a.has("--fp8-format") &&
                    a.word("--fp8-recipe", "delayed") == "delayed";
           },
           "--first-last-layers-bf16 does not go with --fp8-recipe delayed",
           "choose another --fp8-recipe"},
          {"M28",
           {"--ckpt-format", "--use-legacy-models"},
           [](const A& a) { return a.has("--use-legacy-models") && a.distributed_checkpoint(); },
           "the old models write --ckpt-format torch alone",
           "give it, or leave --use-legacy-models out"},
          {"M28",
           {"--use-legacy-models"},
           [](const A& a) {
             return a.has("--use-legacy-models") &&
                    (a.any({"--overlap-param-gather", "--decoupled-lr", "--decoupled-min-lr", "--rotary-interleaved",
                            "--mtp-num-layers"}) ||
                     a.context() > 1);
           },
           "the old models know neither --overlap-param-gather nor rates of their own, shared sequences, interleaved "
           "rotary "
           "positions or several predicted tokens",
           "leave --use-legacy-models out"}};
}

std::vector<MegatronRule> recomputation() {
  return {{"REC1",
           {"--distribute-saved-activations", "--tensor-model-parallel-size", "--recompute-granularity"},
           [](const A& a) {
             return a.has("--distribute-saved-activations") && (a.tensor() < 2 || a.recomputation() != "full" ||
                                                                !a.has("--recompute-method") || a.sequence_parallel());
           },
           "--distribute-saved-activations needs --tensor-model-parallel-size, --recompute-granularity full and "
           "--recompute-method, without --sequence-parallel",
           "leave it out"},
          {"REC2",
           {"--recompute-method", "--recompute-granularity", "--recompute-activations"},
           [](const A& a) { return a.recomputation() == "selective" && a.has("--recompute-method"); },
           "--recompute-method is for --recompute-granularity full",
           "leave it out"},
          {"REC2",
           {"--recompute-num-layers", "--recompute-granularity", "--recompute-activations"},
           [](const A& a) { return a.recomputation() == "selective" && a.has("--recompute-num-layers"); },
           "--recompute-num-layers is for --recompute-granularity full",
           "leave it out"},
          {"REC3",
           {"--recompute-granularity", "--recompute-method", "--recompute-num-layers"},
           [](const A& a) {
             return a.recomputation() == "full" && !(a.has("--recompute-method") && a.has("--recompute-num-layers"));
           },
           "--recompute-granularity full needs --recompute-method and --recompute-num-layers",
           "give both"},
          {"REC4",
           {"--recompute-modules"},
           [](const A& a) {
             const auto words = a.words("--recompute-modules");
             return a.recomputation() == "selective" && std::any_of(words.begin(), words.end(), [](const auto& word) {
                      return !is_one_of(word, {"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"});
                    });
           },
           "--recompute-modules names a module that there is not",
           "choose core_attn, moe_act, layernorm, mla_up_proj, mlp, moe"},
          {"REC5",
           {"--recompute-modules", "--moe-grouped-gemm", "--multi-latent-attention"},
           [](const A& a) {
             const auto words = a.words("--recompute-modules");
             const auto names = [&](const char* word) {
               return std::find(words.begin(), words.end(), word) != words.end();
             };
             return a.recomputation() == "selective" && ((names("moe_act") && !a.has("--moe-grouped-gemm")) ||
                                                         (names("mla_up_proj") && !a.has("--multi-latent-attention")));
           },
           "moe_act is a module of --moe-grouped-gemm, mla_up_proj one of --multi-latent-attention",
           "leave it out"},
          {"REC7",
           {"--enable-cuda-graph", "--recompute-granularity", "--external-cuda-graph"},
           [](const A& a) {
             return a.has("--enable-cuda-graph") && (!a.recomputation().empty() || a.has("--external-cuda-graph"));
           },
           "--enable-cuda-graph goes neither with recomputation nor with --external-cuda-graph",
           "leave it out"},
          {"REC8",
           {"--moe-layer-recompute", "--recompute-granularity"},
           [](const A& a) { return a.has("--moe-layer-recompute") && a.recomputation() == "full"; },
           "--recompute-granularity full computes experts again anyway",
           "leave --moe-layer-recompute out"}};
}

std::vector<MegatronRule> experts() {
  return {{"MOE1",
           {"--spec", "--num-experts"},
           [](const A& a) { return a.experts() != 0 && a.has("--spec"); },
           "--spec does not go with experts",
           "leave it out"},
          {"MOE3",
           {"--expert-model-parallel-size", "--num-experts"},
           [](const A& a) {
             return a.experts_cut() > 1 && (a.experts() == 0 || a.experts() % a.experts_cut() != 0 || a.has("--fp16"));
           },
           "--expert-model-parallel-size has to divide --num-experts, and does not go with --fp16",
           "change one of them"},
          {"MOE4",
           {"--num-experts", "--disable-bias-linear"},
           [](const A& a) { return a.experts() > 0 && !a.has("--disable-bias-linear"); },
           "experts have no biases",
           "give --disable-bias-linear"},
          {"MOE6",
           {"--moe-enable-deepep", "--moe-token-dispatcher-type"},
           [](const A& a) { return a.has("--moe-enable-deepep") && a.word("--moe-token-dispatcher-type") != "flex"; },
           "--moe-enable-deepep needs --moe-token-dispatcher-type flex",
           "give both or neither"},
          {"MOE6",
           {"--moe-pad-expert-input-to-capacity", "--moe-token-dispatcher-type"},
           [](const A& a) {
             return a.word("--moe-token-dispatcher-type") == "flex" && a.has("--moe-pad-expert-input-to-capacity");
           },
           "--moe-token-dispatcher-type flex pads nothing",
           "leave --moe-pad-expert-input-to-capacity out"},
          {"MOE7",
           {"--moe-shared-expert-overlap", "--moe-token-dispatcher-type"},
           [](const A& a) {
             return a.has("--moe-shared-expert-overlap") && a.has("--moe-shared-expert-intermediate-size") &&
                    a.word("--moe-token-dispatcher-type", "allgather") != "alltoall";
           },
           "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall",
           "give it, or leave the overlap out"},
          {"MOE8",
           {"--moe-expert-capacity-factor", "--moe-router-load-balancing-type"},
           [](const A& a) {
             return a.has("--moe-expert-capacity-factor") &&
                    !is_one_of(a.word("--moe-router-load-balancing-type", "aux_loss"),
                               {"aux_loss", "seq_aux_loss", "none"});
           },
           "--moe-expert-capacity-factor needs --moe-router-load-balancing-type aux_loss, seq_aux_loss or none",
           "choose one of these"},
          {"MOE8",
           {"--moe-pad-expert-input-to-capacity", "--moe-expert-capacity-factor"},
           [](const A& a) {
             return a.has("--moe-pad-expert-input-to-capacity") && a.real("--moe-expert-capacity-factor", -1) < 0;
           },
           "--moe-pad-expert-input-to-capacity does not know the capacity",
           "give --moe-expert-capacity-factor"},
          {"MOE9",
           {"--moe-permute-fusion", "--moe-token-dispatcher-type"},
           [](const A& a) {
             return a.has("--moe-permute-fusion") && a.word("--moe-token-dispatcher-type") == "alltoall_seq";
           },
           "alltoall_seq has no fused permutation",
           "leave --moe-permute-fusion out"},
          {"MOE9",
           {"--expert-tensor-parallel-size", "--moe-token-dispatcher-type"},
           [](const A& a) {
             return a.word("--moe-token-dispatcher-type") == "alltoall_seq" &&
                    a.number("--expert-tensor-parallel-size", a.tensor()) != a.tensor();
           },
           "alltoall_seq cuts experts as everything else",
           "leave --expert-tensor-parallel-size out"},
          {"MOE10",
           {"--moe-router-enable-expert-bias", "--moe-router-score-function"},
           [](const A& a) {
             return a.has("--moe-router-enable-expert-bias") &&
                    a.word("--moe-router-score-function", "softmax") != "sigmoid";
           },
           "--moe-router-enable-expert-bias is for --moe-router-score-function sigmoid",
           "give it"},
          {"MOE11",
           {"--moe-router-topk", "--num-experts"},
           [](const A& a) {
             return a.experts() > 0 && a.number("--moe-router-topk", 2) == 1 && !a.has("--moe-router-pre-softmax") &&
                    a.word("--moe-router-score-function", "softmax") == "softmax" &&
                    a.word("--moe-router-load-balancing-type", "aux_loss") != "sinkhorn";
           },
           "one expert of a softmax over one has no gradient",
           "give --moe-router-pre-softmax"},
          {"MOE12",
           {"--moe-router-group-topk", "--moe-router-num-groups"},
           [](const A& a) {
             const auto groups = a.number("--moe-router-num-groups", 0);
             return a.has("--moe-router-group-topk") &&
                    (groups < 1 || a.experts() % groups != 0 || a.number("--moe-router-group-topk", 0) > groups);
           },
           "--moe-router-group-topk needs --moe-router-num-groups, which divide the experts and are at least as many",
           "change one of them"}};
}

}  // namespace

const std::vector<MegatronRule>& megatron_model_rules() {
  static const std::vector<MegatronRule> all = [] {
    std::vector<MegatronRule> rules;
    for (const auto& part : {sizes(), layers(), recomputation(), experts()})
      rules.insert(rules.end(), part.begin(), part.end());
    return rules;
  }();
  return all;
}

}  // namespace tessera::flags
