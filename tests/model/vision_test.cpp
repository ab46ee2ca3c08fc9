// The vision tower, its features in the text model, and rotary embedding with three axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>

#include "framework/base/error.h"
#include "framework/model/axis_angles.h"
#include "framework/model/generation.h"
#include "framework/model/vision_front.h"
#include "framework/parallel/layer_plan.h"
#include "tests/image_samples.h"
#include "tests/model/built.h"

namespace tessera::model {
namespace {

using Grids = std::vector<SmallGrid>;

/// What a tap sees under `name` in a forward pass.
std::vector<float> seen(Built& b, const TokenBatch& batch, const std::string& name) {
  std::vector<float> out;
  const nn::Tap tap = [&](std::string_view of, const Tensor& value) {
    if (of == name) out.assign(value.floats().begin(), value.floats().end());
  };
  autograd::Tape tape(b.arena, b.threads, false);
  b.model->loss(tape, batch, {.tap = &tap});
  return out;
}

/// The difference is rounding: other extents of products are summed in another order.
void expect_near(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 2e-5F * std::max(1.0F, std::abs(b[i]))) << what << ", element " << i;
}

Grids random_grids(std::mt19937& random, std::size_t count) {
  Grids grids;
  for (std::size_t i = 0; i < count; ++i)
    grids.push_back({static_cast<std::int32_t>(1 + random() % 3), static_cast<std::int32_t>(2 + 2 * (random() % 3)),
                     static_cast<std::int32_t>(2 + 2 * (random() % 3))});
  return grids;
}

class EveryTower : public testing::TestWithParam<const char*> {
 protected:
  std::string words(const std::string& more = "") const {
    return small_vision + (*GetParam() ? " " : "") + GetParam() + (more.empty() ? "" : " ") + more;
  }
};

INSTANTIATE_TEST_SUITE_P(Vision, EveryTower,
                         testing::Values("",
                                         "vision.normalization:RMSNorm vision.hidden_act:silu "
                                         "vision.gated_linear_unit:true vision.window_size:8 "
                                         "vision.full_attention_layers[0]:1"));

TEST_P(EveryTower, FeaturesOfSeveralImagesAreThoseOfEachAlone) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  Built b(words(), 128);
  for (int round = 0; round < 4; ++round) {
    const auto grids = random_grids(random, 3);
    auto all = image_batch({{grids[0], grids[1]}, {grids[2]}}, 128, seed);
    const auto together = seen(b, all.view(), "vision_projection");
    std::vector<float> alone;
    std::size_t patch = 0;
    for (const auto& grid : grids) {
      auto one = image_batch({{grid}}, 128, seed + 1);
      const auto pixels = one.field<float>(pixel_field);
      std::ranges::copy(all.field<float>(pixel_field).subspan(patch, pixels.size()), pixels.begin());
      patch += pixels.size();
      const auto features = seen(b, one.view(), "vision_projection");
      alone.insert(alone.end(), features.begin(), features.end());
    }
    expect_near(together, alone, text("seed ", seed, ", round ", round));
  }
}

/// Along the direction of the gradient the loss grows as fast as the gradient says.
TEST_P(EveryTower, TheGradientIsThatOfTheLoss) {
  Built b(words(), 40);
  auto batch = image_batch({{{1, 4, 6}, {1, 2, 2}}, {}, {{2, 2, 4}}}, 40, 3);
  ForwardMode mode;
  mode.training = true;
  mode.objective = &mean_cross_entropy();
  {
    autograd::Tape tape(b.arena, b.threads, true);
    b.model->loss(tape, batch.view(), mode);
    tape.backward();
  }
  for (const char* of :
       {"vision_model.patch_embed", "vision_model.decoder.layers.0", "vision_projection", "decoder", "embedding"}) {
    double square = 0;
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    for (const auto& range : b.layout->ranges()) {
      if (!range.parameter->name.starts_with(of)) continue;
      ranges.emplace_back(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.parameter->elements()));
      for (std::size_t i = 0; i < ranges.back().second; ++i)
        square += std::pow(double{b.grads[static_cast<std::size_t>(range.first) + i]}, 2);
    }
    ASSERT_GT(square, 1e-10) << of;
    const auto before = b.values;
    const auto moved = [&](double step) {
      for (const auto& [first, count] : ranges)
        for (std::size_t i = first; i < first + count; ++i)
          b.values[i] = static_cast<float>(before[i] + step * b.grads[i]);
      autograd::Tape tape(b.arena, b.threads, false);
      const auto total = b.model->loss(tape, batch.view(), mode).total;
      b.values = before;
      return total.sum / total.count;
    };
    const double step = 2e-3 / std::sqrt(square);
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step * square), 1, 2e-2) << of;
  }
}

TEST_P(EveryTower, ABatchWithoutImagesIsTextAndGivesTheTowerNoGradient) {
  Built b(words(), 16);
  const auto batch = image_batch({{}, {}}, 16, 4);
  {
    autograd::Tape tape(b.arena, b.threads, true);
    ForwardMode mode;
    mode.training = true;
    b.model->loss(tape, batch.view(), mode);
    tape.backward();
  }
  for (const auto& range : b.layout->ranges()) {
    double sum = 0;
    for (std::int64_t i = 0; i < range.parameter->elements(); ++i)
      sum += std::abs(b.grads[static_cast<std::size_t>(range.first + i)]);
    EXPECT_EQ(sum == 0, range.parameter->name.starts_with("vision_")) << range.parameter->name;
  }
}

/// The chunks of a pipeline that is cut anywhere give the loss and gradients of the whole model, to the bit; a chunk
/// may have no layers. Their operations are those of the whole model.
TEST_P(EveryTower, IsCutIntoChunksAnywhere) {
  auto batch = image_batch({{{1, 4, 6}}, {{1, 2, 4}, {1, 2, 2}}}, 24, 5);
  ForwardMode mode;
  mode.training = true;
  Built whole(words(), 24);
  double loss = 0;
  {
    autograd::Tape tape(whole.arena, whole.threads, true);
    loss = whole.model->loss(tape, batch.view(), mode).total.sum;
    tape.backward();
  }
  const std::vector<std::int32_t> grids = {1, 4, 6, 1, 2, 4};
  for (std::int64_t cut = 0; cut <= 4; ++cut) {
    const auto chunk = [&](bool first) {
      parallel::ModelChunk out;
      out.embedding = first;
      out.loss = !first;
      out.first_layer = first ? 0 : cut;
      out.layers = first ? cut : 4 - cut;
      return out;
    };
    std::vector<std::unique_ptr<Model>> models;
    std::map<std::string, Tensor> gradients;
    std::vector<std::vector<float>> memory;
    for (const bool first : {true, false}) {
      models.push_back(whole.architecture->build({.vocabulary = 29, .chunk = chunk(first)}));
      for (auto* parameter : models.back()->parameters()) {
        const auto found = std::ranges::find_if(
            whole.layout->ranges(), [&](const auto& range) { return range.parameter->name == parameter->name; });
        ASSERT_NE(found, whole.layout->ranges().end()) << parameter->name;
        parameter->leaf.value = found->parameter->leaf.value;
        auto& own = memory.emplace_back(static_cast<std::size_t>(parameter->elements()));
        const Tensor gradient(std::span<float>(own), parameter->shape());
        parameter->leaf.bind_grad(gradient);
        EXPECT_TRUE(gradients.emplace(parameter->name, gradient).second) << parameter->name;
      }
    }
    ASSERT_EQ(gradients.size(), whole.layout->ranges().size());
    EXPECT_DOUBLE_EQ(models[0]->flops(2, 24) + models[1]->flops(2, 24), whole.model->flops(2, 24)) << cut;
    EXPECT_DOUBLE_EQ(models[0]->image_flops(grids) + models[1]->image_flops(grids), whole.model->image_flops(grids));
    Arena arena;
    {
      autograd::Tape front(arena, whole.threads, true), back(arena, whole.threads, true);
      const auto hidden = models[0]->forward(front, {}, batch.view(), mode).hidden;
      const auto boundary = models[1]->boundary(batch.view()).input;
      EXPECT_EQ(hidden.shape(), boundary.shape);
      EXPECT_EQ(models[0]->boundary(batch.view()).output.shape, boundary.shape);
      const auto input = back.input(hidden.value(), true);
      EXPECT_EQ(models[1]->forward(back, input, batch.view(), mode).loss.total.sum, loss) << "cut at " << cut;
      back.backward();
      front.give_grad(hidden, back.take_grad(input));
      front.backward();
    }
    for (const auto& range : whole.layout->ranges()) {
      const auto own = gradients.at(range.parameter->name).floats();
      for (std::size_t i = 0; i < own.size(); ++i)
        ASSERT_EQ(own[i], whole.grads[static_cast<std::size_t>(range.first) + i])
            << range.parameter->name << ", cut at " << cut;
    }
  }
}

/// The first `given` tokens of a batch of one sample, which has its two images of 32 patches in them.
Batch first_tokens(const Batch& batch, std::int64_t given) {
  Batch prompt(image_fields(), 1, given);
  prompt.own_rows(0)[prompt.own_rows(0).size() - 2] = 32;
  prompt.own_rows(0)[prompt.own_rows(0).size() - 1] = 2;
  prompt.resize(given);
  const auto count = static_cast<std::size_t>(given), all = batch.tokens.size();
  std::ranges::copy(batch.tokens.first(count), prompt.tokens.begin());
  std::ranges::copy(batch.view().field<float>(pixel_field), prompt.field<float>(pixel_field).begin());
  std::ranges::copy(batch.view().field<std::int32_t>(grid_field), prompt.field<std::int32_t>(grid_field).begin());
  for (std::size_t axis = 0; axis < 3; ++axis)
    std::ranges::copy(batch.positions.subspan(axis * all, count), prompt.positions.subspan(axis * count).begin());
  return prompt;
}

TEST_P(EveryTower, PromptsOfDifferentImagesTogetherGetTheTokensThatEachGetsAlone) {
  Built b(words() + " init_method_std:0.3", 24);
  autograd::Tape tape(b.arena, b.threads, false);
  constexpr std::array<std::int64_t, 3> given = {11, 14, 12};
  std::vector<Batch> wholes, batches;
  std::vector<TokenBatch> views;
  std::vector<Prompt> prompts;
  const std::vector<std::int32_t> words_alone = {4, 5, 6};
  for (unsigned i = 0; i < given.size(); ++i) {
    wholes.push_back(image_batch({Grids{{1, 4, 6}, {2, 2, 2}}}, 24, 6 + i));
    batches.push_back(first_tokens(wholes[i], given[i]));
  }
  for (const auto& batch : batches) views.push_back(batch.view());
  for (std::size_t i = 0; i < given.size(); ++i)
    prompts.emplace_back(views[i], wholes[i].positions[static_cast<std::size_t>(given[i])] - given[i]);
  prompts.emplace_back(words_alone);
  const GenerationLimits limits{8, {}, 29};
  std::vector<std::vector<std::int32_t>> alone(prompts.size()), together(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i)
    generate(*b.model, tape, prompts[i], {.temperature = 0}, limits, 0, [&](auto t) { alone[i].push_back(t); });
  generate_together(*b.model, tape, prompts, {.temperature = 0}, limits, 0,
                    [&](std::size_t i, std::int32_t token) { together[i].push_back(token); });
  EXPECT_EQ(together, alone);
  EXPECT_NE(alone[0], alone[2]);
}

TEST_P(EveryTower, AnswersAboutAnImageWithTheCache) {
  Built b(words(), 24);
  const Grids grids = {{1, 4, 6}, {2, 2, 2}};
  const auto batch = image_batch({grids}, 24, 6);
  const auto all = logits_of(b, batch.view());
  // The prompt ends behind the images: text, 6 features, text, 2 features, text.
  constexpr std::int64_t given = 11;
  const auto prompt = first_tokens(batch, given);
  auto cache = b.model->make_cache(1, 24);
  autograd::Tape tape(b.arena, b.threads, false);
  const auto as_batch = prompt.view();
  const auto compare = [&](const autograd::Var& logits, std::size_t token) {
    expect_near(logits.floats(), std::span(all).subspan(token * 29, 29), text("token ", token));
  };
  compare(b.model->next_logits(tape, as_batch.tokens, given, cache, &as_batch), given - 1);
  cache.shift_positions(0, batch.positions[given] - given);
  EXPECT_NE(cache.position_shift(0), 0);
  for (std::size_t token = given; token < 24; ++token)
    compare(b.model->next_logits(tape, batch.tokens.subspan(token, 1), 1, cache), token);
}

TEST(VisionTower, WindowsOfAttentionAreImagesOfTheirOwn) {
  // All layers see windows of 2 x 2 features: an image of 4 x 6 features has windows of 2 x 2.
  Built b(small_vision + " vision.window_size:8", 128);
  auto image = image_batch({{{1, 8, 12}}}, 128, 7);
  const auto whole = seen(b, image.view(), "vision_projection");
  const auto pixels = image.field<float>(pixel_field);
  constexpr std::size_t feature = 4 * small_patch, width = 16;
  std::size_t in_order = 0;
  for (std::size_t row = 0; row < 4; row += 2)
    for (std::size_t column = 0; column < 6; column += 2) {
      auto window = image_batch({{{1, 4, 4}}}, 128, 8);
      for (std::size_t i = 0; i < 4; ++i) {
        const auto number = (row + i / 2) * 6 + column + i % 2;
        std::ranges::copy(pixels.subspan(number * feature, feature),
                          window.field<float>(pixel_field).subspan(i * feature).begin());
      }
      // The tower's own order has window after window.
      const auto alone = seen(b, window.view(), "vision_projection");
      expect_near(std::span(whole).subspan(in_order * width, 4 * width), alone, text("window ", row, " ", column));
      in_order += 4;
    }
}

/// Hidden size 16, feed-forward 24, patches of 8 numbers, features of 64 become 16: two layers and the merger.
TEST(VisionTower, CountsTheOperationsOfItsPatchesAndOfThePairsThatSeeEachOther) {
  const auto of = [](const std::string& words, const std::vector<std::int32_t>& grids) {
    return Built(small_vision + words).model->image_flops(grids);
  };
  const double projection = 16 * 8, layer = 4 * 16 * 16 + 2 * 16 * 24, gate = 16 * 24, merger = 64 * 64 + 64 * 16;
  EXPECT_EQ(of("", {}), 0);
  // An image of 4 x 4 patches and a video of two steps of 2 x 2: 24 patches, 6 features.
  const double patches = 24 * (projection + 2 * layer) + 6 * merger;
  EXPECT_DOUBLE_EQ(of("", {1, 4, 4, 2, 2, 2}), 6 * (patches + 2 * 2 * 16 * (16.0 * 16 + 2 * 4 * 4)));
  EXPECT_DOUBLE_EQ(of(" vision.gated_linear_unit:true vision.hidden_act:silu", {1, 4, 4, 2, 2, 2}),
                   of("", {1, 4, 4, 2, 2, 2}) + 6 * 24 * 2 * gate);
  // 4 x 6 patches have a window of 4 x 4 and one of 4 x 2, which one of the two layers sees.
  const double whole = 24.0 * 24, windows = 16 * 16 + 8 * 8;
  EXPECT_DOUBLE_EQ(of(" vision.window_size:8 vision.full_attention_layers[0]:1", {1, 4, 6}),
                   of("", {1, 4, 6}) - 6 * 2 * 16 * (whole - windows));
}

TEST(VisionTower, PutsFeaturesInReadingOrderWhateverItsWindows) {
  // One layer that sees whole images: windows of 2 x 2 features change the tower's order, but no number.
  const auto words = small_vision + " vision.num_layers:1";
  Built plain(words, 64), windows(words + " vision.window_size:8 vision.full_attention_layers[0]:0", 64);
  const auto batch = image_batch({{{1, 4, 6}, {2, 2, 4}}, {{1, 8, 2}}}, 64, 9);
  expect_near(logits_of(windows, batch.view()), logits_of(plain, batch.view()), "logits");
}

TEST(VisionTower, RefusesPlaceholdersThatDoNotFitTheImages) {
  Built b(small_vision, 24);
  auto batch = image_batch({{{1, 4, 6}}}, 24, 10);
  const auto complaint = [&] {
    try {
      logits_of(b, batch.view());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint(), "");
  batch.tokens[20] = 28;
  EXPECT_EQ(complaint(),
            "vision tower: the micro-batch has 7 placeholder tokens (image_token_id 27, video_token_id 28), but its "
            "images have 6 features; texts without images must not contain these tokens: train on other data, or "
            "correct the two options of vision_config");
  const std::vector<std::int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
  std::ranges::replace(batch.tokens, 27, 1);
  EXPECT_NE(complaint().find("has 1 placeholder tokens"), std::string::npos) << complaint();
  std::ranges::copy(tokens, batch.tokens.begin());
  batch.tokens[20] = 1;
  batch.field<std::int32_t>(grid_field)[1] = 3;
  EXPECT_NE(complaint().find("an image of 1 x 3 x 6 patches"), std::string::npos) << complaint();
  batch.field<std::int32_t>(grid_field)[1] = 2;
  EXPECT_NE(complaint().find("pixel_values has 192 elements"), std::string::npos) << complaint();
}

TEST(VisionTower, LayersOfAChunkBehindItAreNumberedAndRecomputedByThemselves) {
  // Layers 1 to 5, of which the tower has 1 and 2; 1 to 3 are recomputed, and the attention of 4.
  const parallel::ModelChunk chunk{.embedding = true,
                                   .first_layer = 1,
                                   .layers = 5,
                                   .loss = true,
                                   .recompute = parallel::ChunkRecompute{.layers = 3, .attention = 1, .gather = 2},
                                   .noop = {4, 5}};
  const auto behind = text_chunk(chunk, 3);
  EXPECT_TRUE(behind.embedding && behind.loss);
  EXPECT_EQ(behind.first_layer, 0);
  EXPECT_EQ(behind.layers, 3);
  EXPECT_EQ(behind.recompute->layers, 1);
  EXPECT_EQ(behind.recompute->attention, 1);
  EXPECT_EQ(behind.recompute->gather, 2);
  auto fewer = chunk;
  fewer.recompute = parallel::ChunkRecompute{.layers = 0, .attention = 1, .gather = 3};
  EXPECT_EQ(text_chunk(fewer, 3).recompute, (parallel::ChunkRecompute{.layers = 0, .attention = 0, .gather = 1}));
  EXPECT_EQ(behind.noop, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(text_chunk(chunk, 6).layers, 0);
  EXPECT_FALSE(text_chunk(chunk, 6).embedding);
  EXPECT_EQ(text_chunk(chunk, 0), chunk);
}

/// mRoPE: pair p of a head turns by the position on the axis of its section, with the frequency base^(-2 p / dim).
TEST(AxisPositions, TurnEachSectionByItsOwnAxis) {
  kernels::Threads threads(2);
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  const std::vector<std::int64_t> sections = {1, 3, 2};
  const nn::RotaryEmbedding rotary(12, 1e4, kernels::RotaryLayout::half, 50);
  std::vector<std::int32_t> positions;
  for (std::int32_t i = 0; i < 2 * 3 * 5; ++i) positions.push_back(i * 7 % 50);
  const auto angles = sectioned_angles(tape, rotary.tables(threads, {}), sections, positions, 2, 5, DType::float32);
  const auto rounded = sectioned_angles(tape, rotary.tables(threads, {}), sections, positions, 2, 5, DType::bfloat16);
  for (std::size_t token = 0; token < 10; ++token)
    for (std::size_t pair = 0; pair < 6; ++pair) {
      const std::size_t axis = pair < 1 ? 0 : pair < 4 ? 1 : 2;
      const auto position = positions[token / 5 * 15 + axis * 5 + token % 5];
      const auto angle = position * std::pow(1e4, -2.0 * static_cast<double>(pair) / 12);
      EXPECT_NEAR(angles.cosine[token * 6 + pair], std::cos(angle), 1e-6) << token << " " << pair;
      EXPECT_NEAR(angles.sine[token * 6 + pair], std::sin(angle), 1e-6) << token << " " << pair;
      EXPECT_EQ(rounded.cosine[token * 6 + pair], static_cast<float>(bfloat16(angles.cosine[token * 6 + pair])));
    }
  positions[3] = 50;
  EXPECT_THROW(sectioned_angles(tape, rotary.tables(threads, {}), sections, positions, 2, 5, DType::float32),
               ShapeError);
}

/// Of a patch, the first half of the pairs turns by its row, the second by its column, with equal frequencies.
TEST(AxisPositions, OfPatchesAreTheirRowsAndColumns) {
  kernels::Threads threads(2);
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  const std::vector<std::int32_t> rows = {0, 3, 5, 2}, columns = {1, 0, 7, 2};
  const auto angles = grid_angles(tape, 8, 1e4, rows, columns);
  for (std::size_t patch = 0; patch < 4; ++patch)
    for (std::size_t pair = 0; pair < 4; ++pair) {
      const auto angle =
          (pair < 2 ? rows[patch] : columns[patch]) * std::pow(1e4, -4.0 * static_cast<double>(pair % 2) / 8);
      EXPECT_NEAR(angles.cosine[patch * 4 + pair], std::cos(angle), 1e-6) << patch << " " << pair;
      EXPECT_NEAR(angles.sine[patch * 4 + pair], std::sin(angle), 1e-6) << patch << " " << pair;
    }
}

TEST(AxisPositions, OfTextAreThoseOfRope) {
  const std::string model = "normalization:RMSNorm hidden_dropout_rate:0 attention_dropout_rate:0 ";
  Built rope(model + "position_embedding_type:rope");
  Built mrope(model + "position_embedding_type:mrope mrope_section[0]:1 mrope_section[1]:0 mrope_section[2]:1");
  const Tokens tokens;
  EXPECT_EQ(logits_of(rope, tokens.batch()), logits_of(mrope, tokens.batch()));
}

}  // namespace
}  // namespace tessera::model
