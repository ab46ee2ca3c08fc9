#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/options/schema.h"
#include "framework/tensor/dtype.h"

namespace tessera {

/// Types that weights and activations may be stored in.
enum class FloatType { float32, bfloat16, float16 };
inline Words<FloatType> words(FloatType) {
  return {{"float32", FloatType::float32}, {"bfloat16", FloatType::bfloat16}, {"float16", FloatType::float16},
          {"fp32", FloatType::float32},    {"bf16", FloatType::bfloat16},     {"fp16", FloatType::float16}};
}

/// training_config: 16-bit training as a whole.
struct HalfPrecisionOptions {
  bool bf16 = false;
  bool fp16 = false;
  std::optional<bool> accumulate_allreduce_grads_in_fp32;
};
void describe(Schema<HalfPrecisionOptions>& s);

/// model_config, whatever the model: the type of each kind of number, where it is not as training_config says.
struct PrecisionOptions {
  std::optional<FloatType> params_dtype;
  std::optional<FloatType> compute_dtype;
  std::optional<FloatType> embedding_init_dtype;
  std::optional<FloatType> residual_connection_dtype;
  bool fp32_residual_connection = false;
  bool fp16_lm_cross_entropy = false;
};
void describe(Schema<PrecisionOptions>& s);

/// In which type each kind of number is stored. Sums (products, norms, softmax, loss, gradients of weights) run in fp32
/// or finer whatever these say, and the optimizer's weights are fp32: docs/numerics.md.
struct Precision {
  DType params = DType::float32;     ///< weights as the model reads them
  DType embedding = DType::float32;  ///< the tables of tokens and positions (and a head tied to them)
  DType compute = DType::float32;    ///< what operations give, and its gradients
  DType residual = DType::float32;   ///< the stream between layers
  DType logits = DType::float32;     ///< logits and the loss of each token
  DType gradients = DType::float32;  ///< to which the sum of a micro batch is rounded before the next is added
};
Precision precision(const HalfPrecisionOptions& training, const PrecisionOptions& model);

/// What is wrong among these options; each option with its group, "model_config.params_dtype".
std::vector<Contradiction> contradictions(const HalfPrecisionOptions& training, const PrecisionOptions& model);

}  // namespace tessera
