#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/options/schema.h"
#include "framework/tensor/dtype.h"

namespace tessera::model {

/// Element types of weights and activations that recipes can name.
enum class FloatType { float32, bfloat16, float16 };
inline options::Words<FloatType> words(FloatType) {
  return {{"float32", FloatType::float32}, {"bfloat16", FloatType::bfloat16}, {"float16", FloatType::float16},
          {"fp32", FloatType::float32},    {"bf16", FloatType::bfloat16},     {"fp16", FloatType::float16}};
}

/// Options of training_config for 16-bit training.
struct HalfPrecisionOptions {
  bool bf16 = false;
  bool fp16 = false;
  std::optional<bool> accumulate_allreduce_grads_in_fp32;
  bool fp32_gradients() const { return accumulate_allreduce_grads_in_fp32.value_or(true); }
};
/// Declares the options.
void describe(options::Schema<HalfPrecisionOptions>& s);

/// Options of model_config for every architecture: storage types that override the type given by training_config.
struct PrecisionOptions {
  std::optional<FloatType> params_dtype;
  std::optional<FloatType> compute_dtype;
  std::optional<FloatType> embedding_init_dtype;
  std::optional<FloatType> residual_connection_dtype;
  bool fp32_residual_connection = false;
  bool fp16_lm_cross_entropy = false;
};
/// Declares the options.
void describe(options::Schema<PrecisionOptions>& s);

/// The storage type of each kind of value. Sums (matrix products, norms, softmax, loss, weight gradients) are computed
/// in fp32 or more precisely in any case, and the optimizer's master weights are fp32: docs/numerics.md.
struct Precision {
  DType params = DType::float32;     ///< weights as the model reads them
  DType embedding = DType::float32;  ///< token and position embeddings (and an output layer tied to them)
  DType compute = DType::float32;    ///< results of operations, and their gradients
  DType residual = DType::float32;   ///< the residual stream between layers
  DType logits = DType::float32;     ///< logits, and the loss of each token
  DType gradients = DType::float32;  ///< type to which the fp32 main gradients are rounded after each micro-batch
};
/// The storage types that result from the options.
Precision precision(const HalfPrecisionOptions& training, const PrecisionOptions& model);

/// The violated rules between the options of both groups; options are named with their group, as in
/// "model_config.params_dtype". Empty: none.
std::vector<options::Finding> broken_rules(const HalfPrecisionOptions& training, const PrecisionOptions& model);

}  // namespace tessera::model
