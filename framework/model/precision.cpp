#include "framework/model/precision.h"

namespace tessera {
namespace {

DType dtype(FloatType type) {
  switch (type) {
    case FloatType::float32:
      return DType::float32;
    case FloatType::bfloat16:
      return DType::bfloat16;
    case FloatType::float16:
      return DType::float16;
  }
  throw BugError("broken promise: every FloatType has a DType");
}

DType chosen(const std::optional<FloatType>& given, DType otherwise) { return given ? dtype(*given) : otherwise; }

DType of_training(const HalfPrecisionOptions& o) {
  if (o.bf16) return DType::bfloat16;
  return o.fp16 ? DType::float16 : DType::float32;
}

}  // namespace

void describe(Schema<HalfPrecisionOptions>& s) {
  using O = HalfPrecisionOptions;
  s.option("bf16", &O::bf16, "Train in bfloat16: weights and activations in bf16, fp32 main weights in the optimizer.");
  s.option("fp16", &O::fp16,
           "Train in float16 with loss scaling: weights and activations in fp16, fp32 main weights in the optimizer.");
  s.option(
      "accumulate_allreduce_grads_in_fp32", &O::accumulate_allreduce_grads_in_fp32,
      "Accumulate and reduce gradients in fp32; false: the sum is rounded to `params_dtype` after each micro-batch.");
}

void describe(Schema<PrecisionOptions>& s) {
  using O = PrecisionOptions;
  s.option("params_dtype", &O::params_dtype,
           "Data type of the model's weights; null: set by `bf16` and `fp16` of training_config.")
      .alias("param_init_dtype");
  s.option("compute_dtype", &O::compute_dtype,
           "Data type to which operations round their results; null: `params_dtype`.");
  s.option("embedding_init_dtype", &O::embedding_init_dtype,
           "Data type of the word and position embeddings; null: `params_dtype`.")
      .alias("embedding_dtype");
  s.option("residual_connection_dtype", &O::residual_connection_dtype,
           "Data type of the residual connection between layers; null: `compute_dtype`.");
  s.option("fp32_residual_connection", &O::fp32_residual_connection,
           "Keep the residual connection in fp32; same as `residual_connection_dtype: float32`.");
  s.option("fp16_lm_cross_entropy", &O::fp16_lm_cross_entropy, "Round logits and per-token losses to `compute_dtype`.");
}

Precision precision(const HalfPrecisionOptions& training, const PrecisionOptions& model) {
  Precision out;
  out.params = chosen(model.params_dtype, of_training(training));
  out.compute = chosen(model.compute_dtype, model.params_dtype ? out.params : of_training(training));
  out.embedding = chosen(model.embedding_init_dtype, out.params);
  out.residual = model.fp32_residual_connection ? DType::float32 : chosen(model.residual_connection_dtype, out.compute);
  out.logits = model.fp16_lm_cross_entropy ? out.compute : DType::float32;
  out.gradients = training.accumulate_allreduce_grads_in_fp32.value_or(true) ? DType::float32 : out.params;
  return out;
}

std::vector<Contradiction> contradictions(const HalfPrecisionOptions& training, const PrecisionOptions& model) {
  std::vector<Contradiction> found;
  const auto wrong = [&](const char* rule, bool is, const char* option, const std::string& words) {
    if (is) found.push_back({option, words, rule});
  };
  wrong("MP1", training.bf16 && training.fp16, "training_config.fp16",
        "bf16 and fp16 are both true; a run has one of them, give the one you mean");
  const auto whole = of_training(training);
  const auto against = [&](const std::optional<FloatType>& given, const char* option) {
    wrong("one type", whole != DType::float32 && given && dtype(*given) != whole, option,
          text(option + sizeof("model_config.") - 1, " is ", given ? name_of(dtype(*given)) : "",
               ", but training_config asks for ", name_of(whole), "; give one of them"));
  };
  against(model.params_dtype, "model_config.params_dtype");
  against(model.compute_dtype, "model_config.compute_dtype");
  wrong("one residual type",
        model.fp32_residual_connection && model.residual_connection_dtype &&
            *model.residual_connection_dtype != FloatType::float32,
        "model_config.fp32_residual_connection",
        "fp32_residual_connection is true, but residual_connection_dtype says another type; give one of them");
  const auto made = precision(training, model);
  wrong("MP6", model.fp16_lm_cross_entropy && made.compute == DType::float32, "model_config.fp16_lm_cross_entropy",
        "fp16_lm_cross_entropy needs a 16-bit compute_dtype; give bf16 or fp16, or leave it out");
  return found;
}

}  // namespace tessera
