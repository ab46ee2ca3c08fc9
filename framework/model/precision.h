#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/options/schema.h"
#include "framework/tensor/dtype.h"

namespace tessera::model {

/// Types for storing weights and activations.
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

/// Options of model_config, for every architecture: the storage type of each kind of value, if it differs from
/// training_config.
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
  DType gradients = DType::float32;  ///< the main gradient is rounded to it after each micro-batch
};
/// The types that the options result in.
Precision precision(const HalfPrecisionOptions& training, const PrecisionOptions& model);

/// The rules between both that do not hold; each names its option with the group, "model_config.params_dtype".
std::vector<options::Finding> broken_rules(const HalfPrecisionOptions& training, const PrecisionOptions& model);

}  // namespace tessera::model
