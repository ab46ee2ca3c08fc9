#include "framework/training/reports/score.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "framework/base/error.h"
#include "tests/story.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

/// The loss that StandIn gives the label behind a context: differs with every token of the context and its order.
double loss_of(std::span<const std::int32_t> context, std::int32_t label) {
  double hash = 0.5 * label;
  for (const auto token : context) hash = 0.25 * hash + token;
  return 1 + hash;
}

/// A model whose losses are known. Counts the tokens it was asked about and refuses what evaluation may not ask for.
class StandIn final : public StandInModel {
 public:
  model::ChunkResult forward(autograd::Tape&, const autograd::Var&, const TokenBatch& b,
                             const model::ForwardMode& mode) const override {
    must(!mode.training, "a text is scored without dropout");
    autograd::LossSum total;
    for (std::int64_t row = 0; row < b.samples; ++row)
      for (std::int64_t t = 0; t < b.seq_length; ++t) {
        const auto at = static_cast<std::size_t>(row * b.seq_length + t);
        must(b.positions[at] == t && b.document_start[at] == 0, "a window is one document that begins at position 0");
        if (b.loss_mask[at] == 0) continue;
        const auto context =
            b.tokens.subspan(static_cast<std::size_t>(row * b.seq_length), static_cast<std::size_t>(t) + 1);
        total.sum += b.loss_mask[at] * loss_of(context, b.labels[at]);
        total.count += b.loss_mask[at];
      }
    return {{}, {total, {}}};
  }
};

/// Every token but the first once, with the context of the first window that has its label.
double expected_sum(std::span<const std::int32_t> tokens, const Windows& w) {
  double sum = 0;
  for (std::int64_t label = 1; label < static_cast<std::int64_t>(tokens.size()); ++label) {
    std::int64_t first = 0;
    while (first + w.seq_length < label) first += w.stride;
    sum += loss_of(tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(label - first)),
                   tokens[static_cast<std::size_t>(label)]);
  }
  return sum;
}

autograd::LossSum scored(std::span<const std::int32_t> tokens, const Windows& windows) {
  const StandIn model;
  kernels::Threads threads(1);
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  return score(model, tape, tokens, model.vocabulary(), windows);
}

TEST(Score, CountsEveryTokenOnceWithTheContextOfItsFirstWindow) {
  std::mt19937 rng(1);
  for (const std::int64_t length : {1, 2, 5, 8})
    for (std::int64_t stride = 1; stride <= length; ++stride)
      for (const std::int64_t at_once : {1, 3, 8})
        for (std::size_t count = 2; count < 40; ++count) {
          std::vector<std::int32_t> tokens(count);
          for (auto& token : tokens) token = static_cast<std::int32_t>(rng() % 50);
          const Windows windows{length, stride, at_once};
          const auto sum = scored(tokens, windows);
          const auto where =
              text(count, " tokens, sequences of ", length, ", stride ", stride, ", ", at_once, " at once");
          ASSERT_EQ(sum.count, static_cast<double>(count - 1)) << where;
          ASSERT_NEAR(sum.sum, expected_sum(tokens, windows), 1e-9 * sum.sum) << where;
        }
}

TEST(Score, NothingToScoreAndTokensOfAnotherVocabularyAreRefused) {
  const std::vector<std::int32_t> none, one = {3}, foreign = {3, 50, 4}, negative = {3, -1};
  for (const auto& few : {none, one})
    EXPECT_TRUE(says(story_of([&] { scored(few, {4, 2}); }), "there is no token to score"));
  EXPECT_TRUE(says(story_of([&] { scored(foreign, {4, 2}); }), "token 50 is outside the model's vocabulary of 50"));
  EXPECT_TRUE(says(story_of([&] { scored(negative, {4, 2}); }), "token -1"));
}

}  // namespace
}  // namespace tessera::training
