#include "framework/model/precision.h"

namespace tessera::model {
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
  throw BugError("internal error: this does not hold: every FloatType has a DType");
}

DType chosen(const std::optional<FloatType>& given, DType otherwise) { return given ? dtype(*given) : otherwise; }

DType of_training(const HalfPrecisionOptions& o) {
  if (o.bf16) return DType::bfloat16;
  return o.fp16 ? DType::float16 : DType::float32;
}

}  // namespace

void describe(options::Schema<HalfPrecisionOptions>& s) {
  using O = HalfPrecisionOptions;
  s.when_changed(options::Change::told);
  s.option("bf16", &O::bf16, "Train in bfloat16: weights and activations in bf16, fp32 main weights in the optimizer.");
  s.option("fp16", &O::fp16,
           "Train in float16 with loss scaling: weights and activations in fp16, fp32 main weights in the optimizer.")
      .must(
          "MP1", [](const O& o) { return !o.bf16 || !o.fp16; }, [](const O&) { return "bf16 and fp16 are both true"; },
          "give the one you mean", {"bf16"});
  s.option(
       "accumulate_allreduce_grads_in_fp32", &O::accumulate_allreduce_grads_in_fp32,
       "Accumulate and reduce gradients in fp32; false: the sum is rounded to `params_dtype` after each micro-batch")
      .otherwise([](const O& o) { return o.fp32_gradients(); }, "true");
}

void describe(options::Schema<PrecisionOptions>& s) {
  using O = PrecisionOptions;
  s.when_changed(options::Change::told);
  s.option("params_dtype", &O::params_dtype, "Data type of the model's weights.").alias("param_init_dtype");
  s.option("compute_dtype", &O::compute_dtype, "Data type to which operations round their results.");
  s.option("embedding_init_dtype", &O::embedding_init_dtype, "Data type of the word and position embeddings.")
      .alias("embedding_dtype");
  s.option("residual_connection_dtype", &O::residual_connection_dtype,
           "Data type of the residual connection between layers.")
      .replaces({"fp32_residual_connection"})
      .no_flag("only recipes of MindSpeed-Core-MS have it");
  s.option("fp32_residual_connection", &O::fp32_residual_connection,
           "Keep the residual connection in fp32; same as `residual_connection_dtype: float32`.")
      .must(
          "one residual type",
          [](const O& o) {
            return !o.fp32_residual_connection ||
                   o.residual_connection_dtype.value_or(FloatType::float32) == FloatType::float32;
          },
          [](const O& o) {
            return text("fp32_residual_connection is true, but residual_connection_dtype is ",
                        options::OptionType<FloatType>::write(*o.residual_connection_dtype));
          },
          "give one of them", {"residual_connection_dtype"});
  s.option("fp16_lm_cross_entropy", &O::fp16_lm_cross_entropy, "Round logits and per-token losses to `compute_dtype`.");
}

Precision precision(const HalfPrecisionOptions& training, const PrecisionOptions& model) {
  Precision out;
  out.params = chosen(model.params_dtype, of_training(training));
  out.compute = chosen(model.compute_dtype, model.params_dtype ? out.params : of_training(training));
  out.embedding = chosen(model.embedding_init_dtype, out.params);
  out.residual = model.fp32_residual_connection ? DType::float32 : chosen(model.residual_connection_dtype, out.compute);
  out.logits = model.fp16_lm_cross_entropy ? out.compute : DType::float32;
  out.gradients = training.fp32_gradients() ? DType::float32 : out.params;
  return out;
}

std::vector<options::Finding> broken_rules(const HalfPrecisionOptions& training, const PrecisionOptions& model) {
  std::vector<options::Finding> found;
  const auto whole = of_training(training);
  const auto against = [&](const std::optional<FloatType>& given, const std::string& name) {
    if (whole != DType::float32 && given && dtype(*given) != whole)
      found.push_back({"model_config." + name,
                       text(name, " is ", name_of(dtype(*given)), ", but training_config asks for ", name_of(whole)),
                       "give one of them", "one type"});
  };
  against(model.params_dtype, "params_dtype");
  against(model.compute_dtype, "compute_dtype");
  if (model.fp16_lm_cross_entropy && precision(training, model).compute == DType::float32)
    found.push_back({"model_config.fp16_lm_cross_entropy",
                     "fp16_lm_cross_entropy is true, but compute_dtype is float32; a 16-bit type is needed",
                     "give bf16 or fp16, or leave it out", "MP6"});
  return found;
}

}  // namespace tessera::model
