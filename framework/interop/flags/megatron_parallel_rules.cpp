#include <algorithm>

#include "framework/interop/flags/megatron_rule_lists.h"

// Rules of the parallel layout and of communication.

namespace tessera::flags {
namespace {

using A = AskedFlags;

bool has_wrong_encoder(const A& a) {
  const auto encoder = a.number("--encoder-tensor-model-parallel-size", 0);
  if (a.has("--num-experts") && a.experts() == 0 && a.number("--encoder-pipeline-model-parallel-size", 0) == 0 &&
      encoder != a.tensor())
    return true;
  return encoder > 0 && (a.number("--num-attention-heads", 0) % encoder != 0 || encoder > a.tensor());
}

bool has_word(const A& a, const char* flag, const char* word) {
  const auto words = a.words(flag);
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool has_uneven_ends(const A& a) {
  return a.any({"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"});
}

bool makes_parts_of_chunks(const A& a) {
  const auto chunk = a.number("--num-layers-per-virtual-pipeline-stage", 0);
  return chunk > 0 && a.layers() > 0 && a.pipeline() > 0 &&
         (a.counted_layers() % a.pipeline() != 0 || a.counted_layers() / a.pipeline() % chunk != 0);
}

std::vector<MegatronRule> ranks() {
  return {
      rule("PAR2", {"--encoder-tensor-model-parallel-size", "--num-attention-heads", "--tensor-model-parallel-size"},
           "--encoder-tensor-model-parallel-size must divide --num-attention-heads and be at most "
           "--tensor-model-parallel-size; with --num-experts 0 it must be equal",
           "change it", has_wrong_encoder),
      rule("PAR4", {"--cp-comm-type", "--hierarchical-context-parallel-sizes"},
           "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes", "give them",
           [](const A& a) {
             return has_word(a, "--cp-comm-type", "a2a+p2p") && !a.has("--hierarchical-context-parallel-sizes");
           }),
      rule("D5", {"--pipeline-model-parallel-split-rank", "--pipeline-model-parallel-size"},
           "the encoder takes all pipeline stages, so the decoder has none",
           "lower --pipeline-model-parallel-split-rank",
           [](const A& a) {
             return a.has("--pipeline-model-parallel-split-rank") &&
                    a.pipeline() - a.number("--pipeline-model-parallel-split-rank", 0) <= 0;
           }),
      rule(
          "PAR23", {"--inference-batch-times-seqlen-threshold", "--pipeline-model-parallel-size"},
          "--inference-batch-times-seqlen-threshold needs --pipeline-model-parallel-size above 1", "leave it out",
          [](const A& a) { return a.number("--inference-batch-times-seqlen-threshold", -1) > -1 && a.pipeline() < 2; }),
      rule("PAR24", {"--replication", "--replication-jump", "--non-persistent-ckpt-type"},
           "--replication needs --replication-jump and --non-persistent-ckpt-type local", "leave it out",
           [](const A& a) {
             return a.has("--replication") &&
                    (!a.has("--replication-jump") || a.word("--non-persistent-ckpt-type") != "local");
           })};
}

/// Tessera distributes the layers that make no equal stages, and does not depend on how stages communicate.
std::vector<MegatronRule> stages() {
  const char *per_chunk = "--num-layers-per-virtual-pipeline-stage", *chunks = "--num-virtual-stages-per-pipeline-rank",
             *stages = "--pipeline-model-parallel-size", *no_overlap = "--no-overlap-p2p-communication";
  return {
      exclusive("PAR6", {per_chunk, chunks}),
      rule("PAR6", {per_chunk, chunks, stages, no_overlap},
           "virtual stages need at least 2 pipeline stages, or 3 with --no-overlap-p2p-communication",
           "raise --pipeline-model-parallel-size, or use no virtual stages",
           [=](const A& a) { return a.interleaved() && a.pipeline() <= (a.has(no_overlap) ? 2 : 1); }),
      rule("PAR6", {per_chunk, "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"},
           "--num-layers-per-virtual-pipeline-stage is incompatible with uneven pipeline stages",
           "give --num-virtual-stages-per-pipeline-rank instead",
           [=](const A& a) { return a.has(per_chunk) && !a.has(chunks) && has_uneven_ends(a); }),
      rule("PAR6", {per_chunk, "--num-layers", stages},
           "the layers cannot be divided into equal pipeline stages of whole virtual stages",
           "change one of these numbers", makes_parts_of_chunks),
      rule("PAR6", {"--num-layers", stages}, "--pipeline-model-parallel-size does not divide the layers",
           "change one of them; a recipe of Tessera may use uneven stages",
           [](const A& a) {
             return !a.interleaved() && a.has("--num-layers") && a.pipeline() > 0 && !has_uneven_ends(a) &&
                    a.counted_layers() % a.pipeline() != 0;
           }),
      rule("PAR7", {"--defer-embedding-wgrad-compute", stages},
           "--defer-embedding-wgrad-compute needs --pipeline-model-parallel-size above 1, fused gradient accumulation "
           "and --wgrad-deferral-limit of at least 0",
           "leave it out",
           [](const A& a) {
             return a.has("--defer-embedding-wgrad-compute") &&
                    (a.pipeline() < 2 || a.has("--no-gradient-accumulation-fusion") ||
                     a.number("--wgrad-deferral-limit", 0) < 0);
           }),
      rule("PAR7", {"--overlap-p2p-communication-warmup-flush", no_overlap},
           "--overlap-p2p-communication-warmup-flush needs virtual stages and overlapped communication between stages",
           "leave it out", [=](const A& a) {
             return a.has("--overlap-p2p-communication-warmup-flush") && (!a.interleaved() || a.has(no_overlap));
           })};
}

std::vector<MegatronRule> replicas() {
  return {
      rule("PAR10", {"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size"},
           "--tp-comm-overlap needs --sequence-parallel, which has an effect only with --tensor-model-parallel-size "
           "above 1",
           "leave --tp-comm-overlap out",
           [](const A& a) { return a.has("--tp-comm-overlap") && !a.sequence_parallel(); }),
      rule("PAR17", {"--overlap-param-gather-with-optimizer-step"},
           "--overlap-param-gather-with-optimizer-step needs --use-distributed-optimizer, --overlap-param-gather, "
           "virtual stages and --ckpt-format torch",
           "leave it out",
           [](const A& a) {
             return a.has("--overlap-param-gather-with-optimizer-step") &&
                    (!a.has("--use-distributed-optimizer") || !a.has("--overlap-param-gather") || !a.interleaved() ||
                     a.distributed_checkpoint());
           }),
      rule("PAR18",
           {"--use-torch-fsdp2", "--pipeline-model-parallel-size", "--expert-model-parallel-size",
            "--use-distributed-optimizer", "--ckpt-format", "--fp16"},
           "--use-torch-fsdp2 is incompatible with pipeline parallelism, expert parallelism, "
           "--use-distributed-optimizer, fused gradient accumulation, tied embeddings and --fp16, and needs "
           "--ckpt-format torch_dist or torch_dcp",
           "leave it out",
           [](const A& a) {
             const auto format = a.word("--ckpt-format", "torch_dist");
             return a.has("--use-torch-fsdp2") &&
                    (a.pipeline() > 1 || a.experts_cut() > 1 || a.any({"--use-distributed-optimizer", "--fp16"}) ||
                     !a.has("--no-gradient-accumulation-fusion") || (format != "torch_dist" && format != "torch_dcp") ||
                     !a.has("--untie-embeddings-and-output-weights"));
           }),
      rule(
          "PAR19", {"--use-custom-fsdp", "--use-distributed-optimizer", "--data-parallel-sharding-strategy"},
          "--use-custom-fsdp needs --use-distributed-optimizer, and --no-gradient-accumulation-fusion if gradients are "
          "sharded",
          "leave it out",
          [](const A& a) {
            const auto how = a.word("--data-parallel-sharding-strategy");
            const bool more = how == "optim_grads" || how == "optim_grads_params";
            return a.has("--use-custom-fsdp") &&
                   (!a.has("--use-distributed-optimizer") || (more && !a.has("--no-gradient-accumulation-fusion")) ||
                    (how == "optim_grads_params" && a.has("--check-weight-hash-across-dp-replicas-interval")));
          }),
      rule("PAR21", {"--disable-gloo-process-groups", "--use-distributed-optimizer", "--ckpt-format"},
           "--ckpt-format torch gathers the optimizer state over Gloo", "leave --disable-gloo-process-groups out",
           [](const A& a) {
             return a.has("--disable-gloo-process-groups") && a.has("--use-distributed-optimizer") &&
                    !a.distributed_checkpoint();
           }),
      rule("C4",
           {"--ckpt-format", "--use-torch-fsdp2", "--tensor-model-parallel-size", "--pipeline-model-parallel-size"},
           "--ckpt-format torch_dcp needs --use-torch-fsdp2 without tensor and pipeline parallelism",
           "choose another format", [](const A& a) {
             return a.word("--ckpt-format") == "torch_dcp" &&
                    (!a.has("--use-torch-fsdp2") || a.tensor() > 1 || a.pipeline() > 1);
           })};
}

}  // namespace

const std::vector<MegatronRule>& megatron_parallel_rules() {
  static const auto all = one_list({ranks(), stages(), replicas()});
  return all;
}

}  // namespace tessera::flags
