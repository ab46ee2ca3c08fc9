#pragma once

#include <vector>

#include "framework/interop/hugging_face/merged_weights.h"
#include "framework/kernels/threads.h"
#include "framework/recipe/adapted_model.h"

namespace tessera::hugging_face {

/// The factor of each adapter of the model of `recipe`, as its layers apply it.
MergedWeights::Scale scale_of(const recipe::Recipe& recipe);

/// Throws ConfigError for an adapter of an embedding that is also the output layer: the adapter does not apply to that.
void refuse_tied_table(const recipe::AdaptedModel& adapted);

/// Logits of all positions of two sequences of fixed tokens, at most 32 each, or of a model with a score head its
/// scores. With a vision tower the second sequence has an image of fixed pixels.
std::vector<float> fixed_logits(const recipe::TrainedModel& model, kernels::Threads& threads);

/// The largest difference between logits of two models, in units of the largest logit of the first or of 1, whichever
/// is larger. Infinity if a number is not finite.
double difference(const std::vector<float>& of, const std::vector<float>& other);

/// The greatest difference of a merged model in fp32.
inline constexpr double most_of_merge = 1e-5;

/// The model of `recipe` without its adapters, computing in fp32, with the weights `merged` unrounded.
recipe::TrainedModel load_merged(const recipe::Recipe& recipe, const MergedWeights& merged);

/// Sets every type of `recipe` to fp32.
void compute_in_fp32(recipe::Recipe& recipe);

}  // namespace tessera::hugging_face
