#include <algorithm>
#include <numeric>

#include "framework/interop/flags/megatron_rule_lists.h"
#include "framework/interop/flags/python_number.h"
#include "framework/options/option_type.h"

// Rules of how a run is cut over processes.

namespace tessera::flags {
namespace {

using A = AskedFlags;

std::int64_t model_ranks(const A& a) {
  const auto encoder_stages = a.number("--encoder-pipeline-model-parallel-size", 0);
  auto encoder = a.number("--encoder-tensor-model-parallel-size", 0);
  if (encoder_stages > 0 && encoder == 0) encoder = a.tensor();
  return a.tensor() * a.pipeline() * a.context() + encoder * encoder_stages * a.context();
}

bool says(const A& a, const char* flag, const char* word) {
  const auto words = a.words(flag);
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<MegatronRule> ranks() {
  return {{"PAR1",
           {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size"},
           [](const A& a) { return model_ranks(a) < 1 || a.world() % model_ranks(a) != 0; },
           "the processes are no multiple of those of one copy of the model",
           "start another number of processes"},
          {"PAR2",
           {"--encoder-tensor-model-parallel-size", "--num-attention-heads", "--tensor-model-parallel-size"},
           [](const A& a) {
             const auto encoder = a.number("--encoder-tensor-model-parallel-size", 0);
             if (a.has("--num-experts") && a.experts() == 0 &&
                 a.number("--encoder-pipeline-model-parallel-size", 0) == 0 && encoder != a.tensor())
               return true;
             return encoder > 0 && (a.number("--num-attention-heads", 0) % encoder != 0 || encoder > a.tensor());
           },
           "--encoder-tensor-model-parallel-size divides the heads and is at most --tensor-model-parallel-size; with "
           "--num-experts 0 it is the same",
           "change it"},
          {"PAR4",
           {"--hierarchical-context-parallel-sizes", "--context-parallel-size"},
           [](const A& a) {
             std::int64_t product = 1;
             for (const auto& word : a.words("--hierarchical-context-parallel-sizes")) {
               std::int64_t size = 0;
               if (!options::OptionType<std::int64_t>::read(options::Value::of(python_number(word), {}), size))
                 throw A::NotKnown{};
               product *= size;
             }
             return a.has("--hierarchical-context-parallel-sizes") && product != a.context();
           },
           "--hierarchical-context-parallel-sizes do not multiply to --context-parallel-size",
           "change one of them"},
          {"PAR4",
           {"--cp-comm-type", "--hierarchical-context-parallel-sizes"},
           [](const A& a) {
             return says(a, "--cp-comm-type", "a2a+p2p") && !a.has("--hierarchical-context-parallel-sizes");
           },
           "--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes",
           "give them"},
          {"D5",
           {"--pipeline-model-parallel-split-rank", "--pipeline-model-parallel-size"},
           [](const A& a) {
             return a.has("--pipeline-model-parallel-split-rank") &&
                    a.pipeline() - a.number("--pipeline-model-parallel-split-rank", 0) <= 0;
           },
           "the encoder leaves no stage for the decoder",
           "lower --pipeline-model-parallel-split-rank"},
          {"PAR23",
           {"--inference-batch-times-seqlen-threshold", "--pipeline-model-parallel-size"},
           [](const A& a) { return a.number("--inference-batch-times-seqlen-threshold", -1) > -1 && a.pipeline() < 2; },
           "--inference-batch-times-seqlen-threshold is for several stages",
           "leave it out"},
          {"PAR24",
           {"--replication", "--replication-jump", "--non-persistent-ckpt-type"},
           [](const A& a) {
             return a.has("--replication") &&
                    (!a.has("--replication-jump") || a.word("--non-persistent-ckpt-type") != "local");
           },
           "--replication needs --replication-jump and --non-persistent-ckpt-type local",
           "leave it out"}};
}

std::vector<MegatronRule> stages() {
  return {
      {"PAR6",
       {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"},
       [](const A& a) {
         return a.has("--num-layers-per-virtual-pipeline-stage") && a.has("--num-virtual-stages-per-pipeline-rank");
       },
       "chunks of a stage are given in two ways",
       "keep one of them"},
      {"PAR6",
       {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
        "--pipeline-model-parallel-size", "--no-overlap-p2p-communication"},
       [](const A& a) { return a.interleaved() && a.pipeline() <= (a.has("--no-overlap-p2p-communication") ? 2 : 1); },
       "chunks need stages that take turns: two, or three where they do not compute while they send",
       "raise --pipeline-model-parallel-size, or leave the chunks out"},
      {"PAR6",
       {"--num-layers-per-virtual-pipeline-stage", "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers"},
       [](const A& a) {
         return a.has("--num-layers-per-virtual-pipeline-stage") && !a.has("--num-virtual-stages-per-pipeline-rank") &&
                a.any({"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"});
       },
       "uneven stages have no number of layers of a chunk",
       "give --num-virtual-stages-per-pipeline-rank instead"},
      {"PAR6",
       {"--num-layers-per-virtual-pipeline-stage", "--num-layers", "--pipeline-model-parallel-size"},
       [](const A& a) {
         const auto chunk = a.number("--num-layers-per-virtual-pipeline-stage", 0);
         return chunk > 0 && a.layers() > 0 && a.pipeline() > 0 &&
                (a.counted_layers() % a.pipeline() != 0 || a.counted_layers() / a.pipeline() % chunk != 0);
       },
       "layers do not make equal stages of whole chunks",
       "change one of these numbers"},
      {"PAR6",
       {"--num-layers", "--pipeline-model-parallel-size"},
       [](const A& a) {
         return !a.interleaved() && a.has("--num-layers") && a.pipeline() > 0 &&
                !a.any({"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"}) &&
                a.counted_layers() % a.pipeline() != 0;
       },
       "--pipeline-model-parallel-size does not divide the layers",
       "change one of them; a recipe of Tessera may cut them unevenly"},
      {"PAR7",
       {"--defer-embedding-wgrad-compute", "--pipeline-model-parallel-size"},
       [](const A& a) {
         return a.has("--defer-embedding-wgrad-compute") &&
                (a.pipeline() < 2 || a.has("--no-gradient-accumulation-fusion") ||
                 a.number("--wgrad-deferral-limit", 0) < 0);
       },
       "--defer-embedding-wgrad-compute needs several stages, fused accumulation and a limit from 0",
       "leave it out"},
      {"PAR7",
       {"--overlap-p2p-communication-warmup-flush", "--no-overlap-p2p-communication"},
       [](const A& a) {
         return a.has("--overlap-p2p-communication-warmup-flush") &&
                (!a.interleaved() || a.has("--no-overlap-p2p-communication"));
       },
       "--overlap-p2p-communication-warmup-flush needs stages that compute while they send",
       "leave it out"},
      {"PAR7",
       {"--expert-model-parallel-size", "--tensor-model-parallel-size", "--sequence-parallel"},
       [](const A& a) { return a.experts_cut() > 1 && a.tensor() > 1 && !a.sequence_parallel(); },
       "ranks that share layers and experts share sequences too",
       "give --sequence-parallel"}};
}

std::vector<MegatronRule> replicas() {
  return {
      {"PAR10",
       {"--tp-comm-overlap", "--sequence-parallel", "--tensor-model-parallel-size"},
       [](const A& a) { return a.has("--tp-comm-overlap") && !a.sequence_parallel(); },
       "--tp-comm-overlap needs --sequence-parallel, which counts with --tensor-model-parallel-size above 1 alone",
       "leave --tp-comm-overlap out"},
      {"PAR16",
       {"--overlap-param-gather", "--use-distributed-optimizer", "--overlap-grad-reduce"},
       [](const A& a) {
         const auto how = a.word("--data-parallel-sharding-strategy");
         const bool weights = how == "optim_grads_params";
         if (!a.has("--overlap-param-gather") && !weights) return false;
         return !a.has("--use-distributed-optimizer") ||
                !(a.has("--overlap-grad-reduce") || weights || how == "optim_grads");
       },
       "--overlap-param-gather needs --use-distributed-optimizer and --overlap-grad-reduce",
       "give both"},
      {"PAR17",
       {"--overlap-param-gather-with-optimizer-step"},
       [](const A& a) {
         return a.has("--overlap-param-gather-with-optimizer-step") &&
                (!a.has("--use-distributed-optimizer") || !a.has("--overlap-param-gather") || !a.interleaved() ||
                 a.distributed_checkpoint());
       },
       "--overlap-param-gather-with-optimizer-step needs --use-distributed-optimizer, --overlap-param-gather, chunks "
       "on "
       "each stage and --ckpt-format torch",
       "leave it out"},
      {"PAR18",
       {"--use-torch-fsdp2", "--pipeline-model-parallel-size", "--expert-model-parallel-size",
        "--use-distributed-optimizer", "--ckpt-format", "--fp16"},
       [](const A& a) {
         const auto format = a.word("--ckpt-format", "torch_dist");
         return a.has("--use-torch-fsdp2") &&
                (a.pipeline() > 1 || a.experts_cut() > 1 || a.has("--use-distributed-optimizer") ||
                 !a.has("--no-gradient-accumulation-fusion") || (format != "torch_dist" && format != "torch_dcp") ||
                 !a.has("--untie-embeddings-and-output-weights") || a.has("--fp16"));
       },
       "--use-torch-fsdp2 goes neither with stages, cut experts, --use-distributed-optimizer, fused accumulation, tied "
       "embeddings nor --fp16, and needs --ckpt-format torch_dist or torch_dcp",
       "leave it out"},
      {"PAR19",
       {"--use-custom-fsdp", "--use-distributed-optimizer", "--data-parallel-sharding-strategy"},
       [](const A& a) {
         const auto how = a.word("--data-parallel-sharding-strategy");
         const bool more = how == "optim_grads" || how == "optim_grads_params";
         return a.has("--use-custom-fsdp") &&
                (!a.has("--use-distributed-optimizer") || (more && !a.has("--no-gradient-accumulation-fusion")) ||
                 (how == "optim_grads_params" && a.has("--check-weight-hash-across-dp-replicas-interval")));
       },
       "--use-custom-fsdp needs --use-distributed-optimizer, and where gradients are shared "
       "--no-gradient-accumulation-fusion",
       "leave it out"},
      {"PAR21",
       {"--disable-gloo-process-groups", "--use-distributed-optimizer", "--ckpt-format"},
       [](const A& a) {
         return a.has("--disable-gloo-process-groups") && a.has("--use-distributed-optimizer") &&
                !a.distributed_checkpoint();
       },
       "--ckpt-format torch collects the optimizer's state over gloo",
       "leave --disable-gloo-process-groups out"},
      {"C4",
       {"--ckpt-format", "--use-torch-fsdp2", "--tensor-model-parallel-size", "--pipeline-model-parallel-size"},
       [](const A& a) {
         return a.word("--ckpt-format") == "torch_dcp" &&
                (!a.has("--use-torch-fsdp2") || a.tensor() > 1 || a.pipeline() > 1);
       },
       "--ckpt-format torch_dcp is for --use-torch-fsdp2 and whole layers",
       "choose another format"}};
}

}  // namespace

const std::vector<MegatronRule>& megatron_parallel_rules() {
  static const std::vector<MegatronRule> all = [] {
    std::vector<MegatronRule> rules;
    for (const auto& part : {ranks(), stages(), replicas()}) rules.insert(rules.end(), part.begin(), part.end());
    return rules;
  }();
  return all;
}

}  // namespace tessera::flags
