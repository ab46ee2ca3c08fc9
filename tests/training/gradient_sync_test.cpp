// When buckets of gradients are reduced: random backward passes with a reducer that notices what it gets.
#include "framework/training/step/gradient_sync.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/story.h"

namespace tessera::training {
namespace {

/// Records which buckets are begun and whether their gradients change after that.
class FakeReducer final : public BucketReducer {
 public:
  FakeReducer(std::span<const parallel::Bucket> buckets, std::span<const float> gradients)
      : buckets_(buckets), gradients_(gradients) {}
  void begin(std::size_t bucket) override {
    begun.push_back(bucket);
    const auto now = of(bucket);
    copies_.emplace_back(now.begin(), now.end());
  }
  void progress() override {}
  void finish() override {
    ++finished;
    for (std::size_t i = 0; i < begun.size(); ++i) {
      const auto now = of(begun[i]);
      changed = changed || !std::equal(now.begin(), now.end(), copies_[i].begin());
    }
  }
  std::vector<std::size_t> begun;
  int finished = 0;
  bool changed = false;

 private:
  std::span<const float> of(std::size_t bucket) const {
    const auto& e = buckets_[bucket].elements;
    return gradients_.subspan(static_cast<std::size_t>(e.first), static_cast<std::size_t>(e.count));
  }
  std::span<const parallel::Bucket> buckets_;
  std::span<const float> gradients_;
  std::vector<std::vector<float>> copies_;
};

/// Parameters with gradients, buckets, and backward passes in an order of their own.
class Gradients {
 public:
  /// Buckets of at least so many elements, for four parameters or more; -1: any, for any number of parameters.
  explicit Gradients(unsigned seed, std::int64_t bucket_elements = -1) : random_(seed) {
    for (std::size_t i = (bucket_elements < 0 ? 1 : 4) + random_() % 6; i > 0; --i) {
      auto& p = parameters_.emplace_back();
      p.name = text("p", i);
      p.global_shape = Shape{static_cast<std::int64_t>(1 + random_() % 200)};
    }
    std::vector<nn::Parameter*> all;
    for (auto& p : parameters_) all.push_back(&p);
    flat.emplace(all);
    buckets = parallel::make_buckets(
        *flat, bucket_elements < 0 ? static_cast<std::int64_t>(random_() % 600) : bucket_elements);
    values.resize(static_cast<std::size_t>(flat->elements()));
    reducer.emplace(buckets, values);
  }
  SharedGradients shared() {
    return {.groups = groups_, .parameters = *flat, .buckets = buckets, .gradients = values, .reducer = &*reducer};
  }
  GradientSync sync(const GradientSync::Options& options) { return {shared(), threads_, options}; }

  /// One backward pass through parameters [first, end), in any order.
  void pass(GradientSync& sync, bool last, std::size_t first, std::size_t end) {
    std::vector<std::size_t> order;
    for (auto i = first; i < end; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random_);
    sync.begin_pass(last);
    for (const auto i : order) {
      const auto& range = flat->ranges()[i];
      for (std::int64_t k = 0; k < range.count; ++k) values[static_cast<std::size_t>(range.first + k)] += 1.001F;
      sync.gradient_complete(range.parameter->leaf);
    }
    sync.end_pass();
  }
  std::size_t count() const { return parameters_.size(); }
  std::vector<std::size_t> all_buckets() const {
    std::vector<std::size_t> all;
    for (std::size_t b = 0; b < buckets.size(); ++b) all.push_back(b);
    return all;
  }

  std::optional<nn::FlatParameters> flat;
  std::vector<parallel::Bucket> buckets;
  std::vector<float> values;
  std::optional<FakeReducer> reducer;

 private:
  std::mt19937 random_;
  std::deque<nn::Parameter> parameters_;
  parallel::ProcessGroups groups_;
  kernels::Threads threads_{1};
};

TEST(GradientSync, BeginsEachBucketOnceInOrderWhenAllItsGradientsAreComplete) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Gradients g(seed);
    auto sync = g.sync({.overlapped = true});
    for (int step = 0; step < 2; ++step) {
      g.reducer.emplace(g.buckets, g.values);
      sync.begin_step();
      // Two chunks, whose passes alternate as in an interleaved schedule.
      const auto middle = g.count() / 2;
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        g.pass(sync, micro_batch == 2, middle, g.count());
        if (micro_batch < 2) {
          ASSERT_TRUE(g.reducer->begun.empty()) << "seed " << seed;
        }
        g.pass(sync, micro_batch == 2, 0, middle);
      }
      ASSERT_EQ(g.reducer->begun, g.all_buckets()) << "seed " << seed;  // all during the backward pass
      sync.finish();
      ASSERT_EQ(g.reducer->begun, g.all_buckets()) << "seed " << seed;
      ASSERT_FALSE(g.reducer->changed) << "seed " << seed;
      ASSERT_EQ(g.reducer->finished, 1) << "seed " << seed;
    }
  }
}

TEST(GradientSync, ABucketIsBegunBeforeTheLastGradientIsComplete) {
  Gradients g(3, 1);  // a bucket for each parameter
  ASSERT_GT(g.buckets.size(), 1U);
  auto sync = g.sync({.overlapped = true});
  sync.begin_step();
  sync.begin_pass(true);
  for (std::size_t i = g.count(); i-- > 1;) {
    sync.gradient_complete(g.flat->ranges()[i].parameter->leaf);
    EXPECT_EQ(g.reducer->begun.size(), g.count() - i);
  }
}

TEST(GradientSync, WithoutOverlapEverythingIsBegunAtTheEnd) {
  Gradients g(5);
  auto sync = g.sync({});
  sync.begin_step();
  g.pass(sync, true, 0, g.count());
  EXPECT_TRUE(g.reducer->begun.empty());
  sync.finish();
  EXPECT_EQ(g.reducer->begun, g.all_buckets());
  EXPECT_FALSE(g.reducer->changed);
}

TEST(GradientSync, ParametersWithoutGradientAreReducedAtTheEnd) {
  Gradients g(7, 1);
  auto sync = g.sync({.overlapped = true});
  sync.begin_step();
  g.pass(sync, true, 0, g.count() - 1);  // the last parameter, which is in the first bucket, was not used
  EXPECT_TRUE(g.reducer->begun.empty());
  sync.finish();
  EXPECT_EQ(g.reducer->begun, g.all_buckets());
}

TEST(GradientSync, GradientsThatNoPassWroteAreZerosBeforeTheyAreReduced) {
  for (const bool overlapped : {false, true}) {
    Gradients g(8, 1);
    auto shared = g.shared();
    const auto check = [&](GradientSync& sync) {
      std::fill(g.values.begin(), g.values.end(), 7.0F);
      const auto& unused = g.flat->ranges()[1];
      unused.parameter->leaf.bind_grad(nn::FlatParameters::view(unused, g.values));
      unused.parameter->leaf.make_grad_stale();
      sync.begin_step();
      g.pass(sync, true, 2, g.count());
      sync.finish();
      for (std::int64_t i = 0; i < unused.count; ++i)
        EXPECT_EQ(g.values[static_cast<std::size_t>(unused.first + i)], 0);
      EXPECT_EQ(g.values[static_cast<std::size_t>(g.flat->ranges()[0].first)], 7);  // which was not stale
      EXPECT_FALSE(unused.parameter->leaf.grad_is_stale());
    };
    auto sync = g.sync({.overlapped = overlapped});
    check(sync);
    EXPECT_FALSE(g.reducer->changed);
    shared.reducer = nullptr;
    kernels::Threads threads(1);
    GradientSync alone(shared, threads, {.overlapped = overlapped});
    check(alone);
  }
}

TEST(GradientSync, AGradientThatChangesAfterItsBucketWasBegunIsRefused) {
  Gradients g(9);
  auto sync = g.sync({.overlapped = true});
  const auto& leaf = g.flat->ranges().back().parameter->leaf;
  for (const bool last : {true, false}) {
    sync.begin_step();
    g.pass(sync, true, 0, g.count());
    sync.begin_pass(last);
    const auto story = story_of([&] { sync.gradient_complete(leaf); });
    EXPECT_TRUE(says(story, "no gradient changes after the reduction of its bucket was begun")) << story;
  }
}

TEST(GradientSync, WrongBucketsAreRefused) {
  const auto refused = [](const auto& change) {
    Gradients g(11, 1);
    EXPECT_GT(g.buckets.size(), 2U);
    change(g.buckets);
    try {
      auto sync = g.sync({.overlapped = true});
      sync.begin_step();
    } catch (const BugError& error) {
      return says(error.what(), "bucket");
    }
    return false;
  };
  using Buckets = std::vector<parallel::Bucket>;
  EXPECT_FALSE(refused([](Buckets&) {}));
  EXPECT_TRUE(refused([](Buckets& b) { b.pop_back(); }));
  EXPECT_TRUE(refused([](Buckets& b) { b.erase(b.begin()); }));
  EXPECT_TRUE(refused([](Buckets& b) { b.erase(b.begin() + 1); }));
  EXPECT_TRUE(refused([](Buckets& b) { std::swap(b[0], b[1]); }));
  EXPECT_TRUE(refused([](Buckets& b) { std::reverse(b.begin(), b.end()); }));
  EXPECT_TRUE(refused([](Buckets& b) { b.insert(b.begin(), b[0]); }));
  EXPECT_TRUE(refused([](Buckets& b) { b[1].elements.first += 64; }));
  EXPECT_TRUE(refused([](Buckets& b) { b[1].elements.count -= 64; }));
  EXPECT_TRUE(refused([](Buckets& b) { b[1].first_parameter += 1; }));
}

TEST(GradientSync, GradientsAreRoundedAfterEachMicroBatchAndAfterTheReduction) {
  Gradients g(13);
  auto sync = g.sync({.type = DType::bfloat16});
  sync.begin_step();
  g.pass(sync, false, 0, g.count());
  EXPECT_EQ(g.values[0], 1.0F);  // 1.001 has no bfloat16
  g.pass(sync, true, 0, g.count());
  EXPECT_EQ(g.values[0], 2.0F);
  g.values[0] = 1.001F;  // what a reduction may give
  sync.finish();
  EXPECT_EQ(g.values[0], 1.0F);
}

}  // namespace
}  // namespace tessera::training
