#include <algorithm>

#include "framework/interop/flags/megatron_rule_lists.h"

// Rules of the length of a run, its data, optimizer, precision and checkpoints.

namespace tessera::flags {
namespace {

using A = AskedFlags;

bool in_steps(const A& a) { return a.number("--train-iters", 0) != 0; }
bool in_samples(const A& a) { return a.number("--train-samples", 0) != 0; }

/// The first condition of Megatron-LM's num_microbatches_calculator that --rampup-batch-size violates.
enum class RampFault { none, no_growth, above_full_size, part_of_increment, no_increment, part_of_micro_batch };

/// Requires --rampup-batch-size. Another number of words has a rule of its own.
RampFault fault_of_ramp(const A& a) {
  const auto ramp = a.numbers("--rampup-batch-size");
  if (ramp.size() != 3) return RampFault::none;
  const auto first = ramp[0], increment = ramp[1], samples = ramp[2];
  if (first <= 0 || increment <= 0 || samples < 0) return RampFault::no_growth;
  const auto micro = std::max<std::int64_t>(1, a.number("--micro-batch-size", 1));
  const auto global = a.has("--global-batch-size") ? a.number("--global-batch-size", 0) : micro * a.replicas();
  if (first > global) return RampFault::above_full_size;
  if ((global - first) % increment != 0) return RampFault::part_of_increment;
  if (first == global || samples == 0) return RampFault::no_increment;
  const bool divisible = first % micro == 0 || a.has("--decrease-batch-size-if-needed");
  return divisible ? RampFault::none : RampFault::part_of_micro_batch;
}

std::vector<MegatronRule> old_words() {
  return {{"D1",
           {"--batch-size"},
           [](const A& a) { return a.has("--batch-size"); },
           "--batch-size is an old word",
           "give --micro-batch-size"},
          {"D1",
           {"--warmup"},
           [](const A& a) { return a.has("--warmup"); },
           "--warmup is an old word",
           "give --lr-warmup-fraction"},
          {"D1",
           {"--model-parallel-size"},
           [](const A& a) { return a.has("--model-parallel-size"); },
           "--model-parallel-size is an old word",
           "give --tensor-model-parallel-size"},
          {"D2",
           {"--checkpoint-activations"},
           [](const A& a) { return a.has("--checkpoint-activations"); },
           "--checkpoint-activations is an old word",
           "give --recompute-activations"}};
}

std::vector<MegatronRule> lengths() {
  return {
      {"B1",
       {"--micro-batch-size"},
       [](const A& a) { return a.number("--micro-batch-size", 0) < 1; },
       "--micro-batch-size is missing, or below 1",
       "give it"},
      {"B1",
       {"--global-batch-size"},
       [](const A& a) { return a.number("--global-batch-size", 1) < 1; },
       "--global-batch-size is below 1",
       "raise it, or leave it out"},
      {"B2",
       {"--global-batch-size", "--micro-batch-size"},
       [](const A& a) {
         const auto micro = a.number("--micro-batch-size", 0) * a.replicas();
         if (micro < 1 || !a.has("--global-batch-size") || a.has("--rampup-batch-size")) return false;
         const auto global = a.number("--global-batch-size", 0);
         return a.has("--decrease-batch-size-if-needed") ? global < micro : global % micro != 0;
       },
       "--global-batch-size is not a multiple of --micro-batch-size on all replicas",
       "change one of them, or the number of processes"},
      {"B3",
       {"--rampup-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && a.words("--rampup-batch-size").size() != 3; },
       "--rampup-batch-size takes three words: first size, increment, samples until the full size",
       "give three"},
      {"B3",
       {"--rampup-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && fault_of_ramp(a) == RampFault::no_growth; },
       "--rampup-batch-size: the first size and the increment must be above 0, the number of samples not below 0",
       "give such numbers"},
      {"B3",
       {"--rampup-batch-size", "--global-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && fault_of_ramp(a) == RampFault::above_full_size; },
       "--rampup-batch-size begins above --global-batch-size",
       "begin below it"},
      {"B3",
       {"--rampup-batch-size", "--global-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && fault_of_ramp(a) == RampFault::part_of_increment; },
       "--rampup-batch-size: the increase from the first size to --global-batch-size is not divisible by the increment",
       "give an increment that divides it"},
      {"B3",
       {"--rampup-batch-size", "--global-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && fault_of_ramp(a) == RampFault::no_increment; },
       "--rampup-batch-size begins with --global-batch-size, or ends after 0 samples; Megatron-LM then divides by 0",
       "leave it out"},
      {"B2",
       {"--rampup-batch-size", "--micro-batch-size"},
       [](const A& a) { return a.has("--rampup-batch-size") && fault_of_ramp(a) == RampFault::part_of_micro_batch; },
       "--rampup-batch-size: --micro-batch-size does not divide the first size",
       "begin with a multiple of it, or give --decrease-batch-size-if-needed"},
      {"B5",
       {"--train-iters", "--train-samples"},
       [](const A& a) { return in_steps(a) && a.has("--train-samples"); },
       "the length of the run is given in steps and in samples",
       "keep one of them"},
      {"B5",
       {"--lr-decay-samples", "--train-iters"},
       [](const A& a) { return in_steps(a) && a.has("--lr-decay-samples"); },
       "a run whose length is in steps decays over steps",
       "give --lr-decay-iters"},
      {"B5",
       {"--lr-warmup-samples", "--train-iters"},
       [](const A& a) { return in_steps(a) && a.number("--lr-warmup-samples", 0) != 0; },
       "a run whose length is in steps warms up over steps",
       "give --lr-warmup-iters"},
      {"B5",
       {"--rampup-batch-size", "--train-iters"},
       [](const A& a) { return in_steps(a) && a.has("--rampup-batch-size"); },
       "a batch that grows needs a run whose length is in samples",
       "give --train-samples instead of --train-iters"},
      {"B5",
       {"--lr-warmup-iters", "--lr-warmup-fraction"},
       [](const A& a) { return in_steps(a) && a.has("--lr-warmup-fraction") && a.number("--lr-warmup-iters", 0) != 0; },
       "the length of the warm-up is given twice",
       "keep one of them"},
      {"B6",
       {"--lr-decay-iters", "--train-samples"},
       [](const A& a) { return in_samples(a) && a.has("--lr-decay-iters"); },
       "a run whose length is in samples decays over samples",
       "give --lr-decay-samples"},
      {"B6",
       {"--lr-warmup-iters", "--train-samples"},
       [](const A& a) { return in_samples(a) && a.number("--lr-warmup-iters", 0) != 0; },
       "a run whose length is in samples warms up over samples",
       "give --lr-warmup-samples"},
      {"B6",
       {"--lr-warmup-samples", "--lr-warmup-fraction"},
       [](const A& a) {
         return in_samples(a) && a.has("--lr-warmup-fraction") && a.number("--lr-warmup-samples", 0) != 0;
       },
       "the length of the warm-up is given twice",
       "keep one of them"}};
}

std::vector<MegatronRule> data() {
  return {{"DAT2",
           {"--data-path", "--data-args-path"},
           [](const A& a) { return a.has("--data-path") && a.has("--data-args-path"); },
           "--data-path and --data-args-path say the same in two ways",
           "keep one of them"},
          {"DAT2",
           {"--per-split-data-args-path", "--train-data-path", "--valid-data-path", "--test-data-path"},
           [](const A& a) {
             return a.has("--per-split-data-args-path") &&
                    a.any({"--train-data-path", "--valid-data-path", "--test-data-path"});
           },
           "the data of each split is given in two ways",
           "keep one of them"},
          {"DAT3",
           {"--data-path", "--mock-data", "--train-data-path", "--valid-data-path", "--test-data-path"},
           [](const A& a) {
             const auto some = [&](const char* flag) { return !a.words(flag).empty(); };
             return int{a.has("--mock-data")} + some("--data-path") +
                        (some("--train-data-path") || some("--valid-data-path") || some("--test-data-path")) >
                    1;
           },
           "data comes from several places",
           "keep one of --data-path, --train-data-path and its like, --mock-data"},
          {"DAT7",
           {"--num-dataset-builder-threads"},
           [](const A& a) { return a.number("--num-dataset-builder-threads", 1) < 1; },
           "--num-dataset-builder-threads is below 1",
           "leave it out"}};
}

std::vector<MegatronRule> optimizer() {
  return {
      {"O1",
       {"--min-lr", "--lr"},
       [](const A& a) { return a.has("--lr") && a.real("--min-lr", 0) > a.real("--lr", 0); },
       "--min-lr is above --lr",
       "lower it"},
      {"O2",
       {"--start-weight-decay", "--end-weight-decay", "--weight-decay-incr-style"},
       [](const A& a) {
         return a.word("--weight-decay-incr-style", "constant") == "constant" &&
                a.any({"--start-weight-decay", "--end-weight-decay"});
       },
       "a weight decay that stays has no ends of its own",
       "leave them out, or give --weight-decay-incr-style"},
      {"O2",
       {"--weight-decay-incr-style", "--start-weight-decay", "--end-weight-decay"},
       [](const A& a) {
         return a.word("--weight-decay-incr-style", "constant") != "constant" &&
                !(a.has("--start-weight-decay") && a.has("--end-weight-decay"));
       },
       "a weight decay that grows needs both ends",
       "give --start-weight-decay and --end-weight-decay"},
      {"O6",
       {"--use-precision-aware-optimizer", "--optimizer", "--use-distributed-optimizer"},
       [](const A& a) {
         return a.has("--use-precision-aware-optimizer") &&
                (a.word("--optimizer", "adam") != "adam" || !a.has("--use-distributed-optimizer"));
       },
       "--use-precision-aware-optimizer is for adam and ranks that share its state",
       "give --use-distributed-optimizer"},
      {"O6",
       {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"},
       [](const A& a) {
         if (a.has("--use-precision-aware-optimizer")) return false;
         for (const auto* flag : {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"})
           if (a.word(flag, "fp32") != "fp32") return true;
         return false;
       },
       "another type of the optimizer's state needs --use-precision-aware-optimizer",
       "leave it out"},
      {"O7",
       {"--optimizer-cpu-offload", "--use-precision-aware-optimizer"},
       [](const A& a) { return a.has("--optimizer-cpu-offload") && !a.has("--use-precision-aware-optimizer"); },
       "--optimizer-cpu-offload needs --use-precision-aware-optimizer",
       "leave it out"},
      {"MP1",
       {"--fp16", "--bf16"},
       [](const A& a) { return a.has("--fp16") && a.has("--bf16"); },
       "a run has one 16-bit type",
       "keep one of --fp16 and --bf16"},
      {"MP3",
       {"--main-grads-dtype", "--accumulate-allreduce-grads-in-fp32"},
       [](const A& a) {
         return a.has("--bf16") && a.has("--accumulate-allreduce-grads-in-fp32") &&
                a.word("--main-grads-dtype", "fp32") != "fp32";
       },
       "gradients that are summed in fp32 are fp32",
       "leave --main-grads-dtype out"},
      {"MP5",
       {"--fp32-residual-connection", "--fp16", "--bf16"},
       [](const A& a) {
         return a.has("--fp32-residual-connection") && !a.any({"--fp16", "--bf16"});
       },
       "--fp32-residual-connection is for 16-bit runs",
       "leave it out"},
      {"MP6",
       {"--fp16-lm-cross-entropy", "--fp16"},
       [](const A& a) { return a.has("--fp16-lm-cross-entropy") && !a.has("--fp16"); },
       "--fp16-lm-cross-entropy is for --fp16",
       "leave it out"},
      {"MP7",
       {"--moe-grouped-gemm", "--bf16"},
       [](const A& a) { return a.has("--moe-grouped-gemm") && !a.has("--bf16"); },
       "--moe-grouped-gemm computes in bf16 alone",
       "give --bf16, or leave it out"}};
}

std::vector<MegatronRule> checkpoints() {
  return {
      {"C1",
       {"--non-persistent-ckpt-type", "--non-persistent-local-ckpt-dir"},
       [](const A& a) {
         const auto type = a.word("--non-persistent-ckpt-type");
         return type == "in_memory" || (type == "local" && !a.has("--non-persistent-local-ckpt-dir"));
       },
       "--non-persistent-ckpt-type is global, or local with --non-persistent-local-ckpt-dir",
       "leave it out"},
      {"C3",
       {"--save", "--save-interval"},
       [](const A& a) { return a.has("--save") && !a.has("--save-interval"); },
       "--save does not say how often",
       "give --save-interval"},
      {"C7",
       {"--ckpt-convert-format", "--ckpt-convert-save", "--load"},
       [](const A& a) { return a.has("--ckpt-convert-format") && !(a.has("--ckpt-convert-save") && a.has("--load")); },
       "--ckpt-convert-format needs --ckpt-convert-save and --load",
       "leave it out"},
      {"C14",
       {"--moe-use-upcycling", "--save"},
       [](const A& a) { return a.has("--moe-use-upcycling") && !a.has("--save"); },
       "--moe-use-upcycling writes a checkpoint first",
       "give --save"},
      {"DET1",
       {"--deterministic-mode", "--use-flash-attn", "--cross-entropy-loss-fusion"},
       [](const A& a) {
         return a.has("--deterministic-mode") && a.any({"--use-flash-attn", "--cross-entropy-loss-fusion"});
       },
       "--deterministic-mode goes neither with --use-flash-attn nor with --cross-entropy-loss-fusion",
       "leave one out"}};
}

}  // namespace

const std::vector<MegatronRule>& megatron_run_rules() {
  static const std::vector<MegatronRule> all = [] {
    std::vector<MegatronRule> rules;
    for (const auto& part : {old_words(), lengths(), data(), optimizer(), checkpoints()})
      rules.insert(rules.end(), part.begin(), part.end());
    return rules;
  }();
  return all;
}

}  // namespace tessera::flags
