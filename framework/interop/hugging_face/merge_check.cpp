#include "framework/interop/hugging_face/merge_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "framework/base/random.h"
#include "framework/data/visual_positions.h"
#include "framework/model/vision_items.h"

namespace tessera::hugging_face {
namespace {

constexpr std::int64_t rows_of_check = 2, most_tokens_of_check = 32;
constexpr std::uint64_t seed_of_check = 29;

const RandomKey random_of_check(seed_of_check, Purpose::sampling);

/// Fills row `row` of the batch with text, which has no placeholder of `vision`, the options of the vision tower; null:
/// the model has none.
void fill_with_tokens(const SampleView& sample, std::uint64_t row, std::int64_t vocabulary,
                      const model::VisionOptions* vision) {
  for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
    const auto drawn = random_of_check.uniform(row, t) * static_cast<double>(vocabulary);
    auto& token = sample.tokens[t] =
        std::min(static_cast<std::int32_t>(drawn), static_cast<std::int32_t>(vocabulary - 1));
    while (vision && vision->is_placeholder(token)) token = (token + 1) % static_cast<std::int32_t>(vocabulary);
    sample.labels[t] = 0;
    sample.loss_mask[t] = 1;
    sample.positions[t] = static_cast<std::int32_t>(t);
    sample.document_start[t] = 0;
  }
}

/// The image of the row behind the text: as many features as there are tokens after the first, at most two rows of two.
data::PatchGrid image_of_check(std::int64_t tokens, const model::VisionOptions& vision) {
  const auto side = static_cast<std::int32_t>(vision.spatial_merge_size);
  const bool has_room = tokens > 2 * 2;
  return {.h = has_room ? 2 * side : side, .w = has_room ? 2 * side : side};
}

/// Puts an image of random pixels behind the first token of a row.
void put_image(const SampleView& sample, const data::PatchGrid& grid, const model::VisionOptions& vision) {
  const auto image = static_cast<std::int32_t>(vision.image_token_id);
  std::fill_n(sample.tokens.begin() + 1, grid.tokens(vision.spatial_merge_size), image);
  std::ranges::copy(std::array{grid.t, grid.h, grid.w}, sample.field<std::int32_t>(model::grid_field).begin());
  const auto pixels = sample.field<float>(model::pixel_field);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(random_of_check.normal(rows_of_check, i));
}

Batch batch_of_text(std::int64_t tokens, std::int64_t vocabulary) {
  Batch batch(rows_of_check, tokens);
  for (std::int64_t row = 0; row < rows_of_check; ++row)
    fill_with_tokens(batch.sample(row), static_cast<std::uint64_t>(row), vocabulary, nullptr);
  return batch;
}

/// Text in the first row, text with an image in the last.
Batch batch_with_image(std::int64_t tokens, std::int64_t vocabulary, const model::VisionOptions& vision) {
  const auto grid = image_of_check(tokens, vision);
  auto fields = token_fields();
  for (auto& field : fields)
    if (field.name == "positions") field.width = 3;
  const auto first = fields.size();
  fields.push_back({model::pixel_field, DType::float32, FieldExtent::own, vision.patch_width(), grid.patches()});
  fields.push_back({model::grid_field, DType::int32, FieldExtent::own, 3, 1});
  Batch batch(fields, rows_of_check, tokens);
  const auto rows = batch.own_rows(rows_of_check - 1);
  rows[first] = grid.patches();
  rows[first + 1] = 1;
  batch.resize(tokens);
  const data::VisualTokens visual{static_cast<std::int32_t>(vision.image_token_id),
                                  static_cast<std::int32_t>(vision.video_token_id), vision.spatial_merge_size};
  for (std::int64_t row = 0; row < rows_of_check; ++row) {
    const auto sample = batch.sample(row);
    const bool has_image = row + 1 == rows_of_check;
    fill_with_tokens(sample, static_cast<std::uint64_t>(row), vocabulary, &vision);
    if (has_image) put_image(sample, grid, vision);
    data::write_visual_positions({.tokens = sample.tokens, .grids = {&grid, has_image ? 1U : 0U}}, visual,
                                 sample.positions);
  }
  return batch;
}

}  // namespace

MergedWeights::Scale scale_of(const recipe::Recipe& recipe) {
  return [forms = recipe::adapters_of(recipe)](const std::string& ours, std::int64_t) { return forms.at(ours).scale; };
}

void refuse_tied_table(const recipe::AdaptedModel& adapted) {
  if (!adapted.trained->has("embedding.word_embeddings.lora_A.weight")) return;
  for (const char* apart : {"untie_embeddings_and_output_weights", "score_head"})
    if (const auto* option = adapted.recipe.resolved.at(text("model_config.", apart));
        option != nullptr && option->scalar == "true")
      return;
  throw ConfigError(text(adapted.folder.string(), ": has an adapter of the embedding, whose table is also the output ",
                         "layer of ", adapted.base->folder().string(),
                         ": merged into it, the adapter would change the output layer too; give --base a folder whose "
                         "output layer has weights of its own (tie_word_embeddings: false), or train the table with "
                         "lora_config.modules_to_save instead"));
}

std::vector<float> fixed_logits(const recipe::TrainedModel& trained, kernels::Threads& threads) {
  const auto& model = *trained.model;
  const auto tokens = std::min(most_tokens_of_check, model.most_positions());
  const auto* vision = trained.recipe.architecture->vision();
  const auto batch = vision && tokens > 1 ? batch_with_image(tokens, model.vocabulary(), *vision)
                                          : batch_of_text(tokens, model.vocabulary());
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  const auto logits = model.logits(tape, batch.view(rows_of_check), {});
  const auto all = logits.floats();
  return {all.begin(), all.end()};
}

double difference(const std::vector<float>& of, const std::vector<float>& other) {
  if (of.size() != other.size()) return std::numeric_limits<double>::infinity();
  double largest = 1, away = 0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const double a = of[i], b = other[i];
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(a));
    away = std::max(away, std::abs(a - b));
  }
  return away / largest;
}

void compute_in_fp32(recipe::Recipe& recipe) {
  recipe.half = {};
  recipe.precision = {};
}

recipe::TrainedModel load_merged(const recipe::Recipe& recipe, const MergedWeights& merged) {
  auto plain = recipe;
  compute_in_fp32(plain);
  plain.train_everything();
  auto out = recipe::without_weights(merged.folder(), std::move(plain), recipe.tokenizer.make());
  checkpoint::load_all(merged, out.weights->weight_ranges());
  out.weights->weights_changed();
  return out;
}

}  // namespace tessera::hugging_face
