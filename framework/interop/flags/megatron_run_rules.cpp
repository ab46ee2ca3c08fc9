#include <algorithm>

#include "framework/interop/flags/megatron_rule_lists.h"

// Rules of removed flags, batches, data, the optimizer, precision and checkpoints.

namespace tessera::flags {
namespace {

using A = AskedFlags;

bool has_no_ramp(const A& a) {
  const auto words = a.words("--rampup-batch-size");
  return a.has("--rampup-batch-size") &&
         (words.size() != 3 ||
          std::any_of(words.begin(), words.end(), [](const auto& word) { return word[0] == '-'; }));
}

std::vector<MegatronRule> removed_flags() {
  return {replaced("D1", "--batch-size", "--micro-batch-size"), replaced("D1", "--warmup", "--lr-warmup-fraction"),
          replaced("D1", "--model-parallel-size", "--tensor-model-parallel-size"),
          replaced("D2", "--checkpoint-activations", "--recompute-activations")};
}

std::vector<MegatronRule> batches_and_data() {
  const char* train_data = "--train-data-path";
  const char* valid_data = "--valid-data-path";
  const char* test_data = "--test-data-path";
  return {rule("B1", {"--micro-batch-size"}, "--micro-batch-size is missing, or below 1", "give at least 1",
               [](const A& a) { return a.number("--micro-batch-size", 0) < 1; }),
          rule("B1", {"--global-batch-size"}, "--global-batch-size is below 1", "give at least 1, or leave it out",
               [](const A& a) { return a.number("--global-batch-size", 1) < 1; }),
          rule("B3", {"--rampup-batch-size"}, "--rampup-batch-size needs 3 numbers, none below 0",
               "give the first size, the increment and the samples until the full size", has_no_ramp),
          exclusive("DAT2", {"--data-path", "--data-args-path"}),
          excludes("DAT2", "--per-split-data-args-path", {train_data, valid_data, test_data}),
          rule("DAT3", {"--data-path", "--mock-data", train_data, valid_data, test_data},
               "--data-path, data paths of single splits and --mock-data are mutually exclusive", "keep one of them",
               [=](const A& a) {
                 const auto some = [&](const char* flag) { return !a.words(flag).empty(); };
                 const bool split = some(train_data) || some(valid_data) || some(test_data);
                 return int{a.has("--mock-data")} + some("--data-path") + split > 1;
               }),
          rule("DAT7", {"--num-dataset-builder-threads"}, "--num-dataset-builder-threads is below 1", "leave it out",
               [](const A& a) { return a.number("--num-dataset-builder-threads", 1) < 1; })};
}

std::vector<MegatronRule> optimizer() {
  const RuleFlags state_types = {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"};
  return {rule("O2", {"--start-weight-decay", "--end-weight-decay", "--weight-decay-incr-style"},
               "--weight-decay-incr-style constant is incompatible with --start-weight-decay and --end-weight-decay",
               "leave them out, or choose another --weight-decay-incr-style",
               [](const A& a) {
                 return a.word("--weight-decay-incr-style", "constant") == "constant" &&
                        a.any({"--start-weight-decay", "--end-weight-decay"});
               }),
          rule("O6", {"--use-precision-aware-optimizer", "--optimizer", "--use-distributed-optimizer"},
               "--use-precision-aware-optimizer needs --optimizer adam and --use-distributed-optimizer",
               "give --use-distributed-optimizer",
               [](const A& a) {
                 return a.has("--use-precision-aware-optimizer") &&
                        (a.word("--optimizer", "adam") != "adam" || !a.has("--use-distributed-optimizer"));
               }),
          rule("O6", state_types, "optimizer state of another type than fp32 needs --use-precision-aware-optimizer",
               "leave it out",
               [=](const A& a) {
                 if (a.has("--use-precision-aware-optimizer")) return false;
                 for (const auto& flag : state_types)
                   if (a.word(flag, "fp32") != "fp32") return true;
                 return false;
               }),
          needs("O7", "--optimizer-cpu-offload", {"--use-precision-aware-optimizer"}),
          rule("MP3", {"--main-grads-dtype", "--accumulate-allreduce-grads-in-fp32"},
               "--accumulate-allreduce-grads-in-fp32 needs --main-grads-dtype fp32", "leave --main-grads-dtype out",
               [](const A& a) {
                 return a.has("--bf16") && a.has("--accumulate-allreduce-grads-in-fp32") &&
                        a.word("--main-grads-dtype", "fp32") != "fp32";
               }),
          rule("MP5", {"--fp32-residual-connection", "--fp16", "--bf16"},
               "--fp32-residual-connection needs --fp16 or --bf16", "leave it out",
               [](const A& a) {
                 return a.has("--fp32-residual-connection") && !a.any({"--fp16", "--bf16"});
               }),
          needs("MP6", "--fp16-lm-cross-entropy", {"--fp16"}),
          needs("MP7", "--moe-grouped-gemm", {"--bf16"})};
}

std::vector<MegatronRule> checkpoints() {
  return {rule("C1", {"--non-persistent-ckpt-type"}, "--non-persistent-ckpt-type must be global or local",
               "leave it out", [](const A& a) { return a.word("--non-persistent-ckpt-type") == "in_memory"; }),
          needs("C3", "--save", {"--save-interval"}), needs("C14", "--moe-use-upcycling", {"--save"}),
          excludes("DET1", "--deterministic-mode", {"--use-flash-attn", "--cross-entropy-loss-fusion"})};
}

}  // namespace

const std::vector<MegatronRule>& megatron_run_rules() {
  static const auto all = one_list({removed_flags(), batches_and_data(), optimizer(), checkpoints()});
  return all;
}

}  // namespace tessera::flags
