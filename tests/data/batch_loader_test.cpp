#include "framework/data/batch_loader.h"

#include <atomic>
#include <chrono>
#include <random>
#include <set>

#include "framework/data/dataset.h"
#include "framework/data/no_tokens.h"
#include "tests/chosen.h"
#include "tests/listed.h"
#include "tests/pairs_of_rows.h"

namespace tessera::data {
namespace {

constexpr std::int64_t length = 5;

/// Samples whose arrays all follow from their index. Counts reads; waits or throws on demand.
class Counted final : public Dataset {
 public:
  explicit Counted(std::int64_t samples) : samples_(samples) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_length() const override { return length; }
  void read(std::int64_t index, const SampleView& out) const override {
    if (slow) std::this_thread::sleep_for(std::chrono::microseconds(index * 7919 % 500));
    if (index == broken) throw ConfigError(text("sample ", index, " is damaged"));
    if (bad.count(index) > 0 && unreadable) throw IoError(text("sample ", index, " is bad"));
    if (bad.count(index) > 0) throw BadSampleError(text("sample ", index, " is bad"));
    const auto first = static_cast<std::int32_t>(index * 100);
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      out.tokens[i] = first + at;
      out.labels[i] = first + at + 1;
      out.loss_mask[i] = (index + at) % 3 == 0 ? 0.0F : 1.0F;
      out.positions[i] = at % 3;
      out.document_start[i] = at / 3 * 3;
    }
    {
      const std::lock_guard lock(mutex_);
      ++reads_;
    }
    changed_.notify_all();
  }

  std::int64_t reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }
  /// Whether so many samples were read before two minutes are over.
  bool wait_for(std::int64_t reads) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2), [&] { return reads_ >= reads; });
  }

  bool slow = false;
  std::atomic<std::int64_t> broken = -1;
  std::set<std::int64_t> bad;
  bool unreadable = false;

 private:
  std::int64_t samples_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::int64_t reads_ = 0;
};

std::unique_ptr<Sampler> order_of(const char* type, std::int64_t samples, const BatchShare& share) {
  return chosen(samplers(), {{"dataloader_type", type}}, SamplerParts{samples, share.samples, share.ranks});
}

void expect_same(const Batch& a, const Batch& b, const std::string& where) {
  EXPECT_EQ(listed(a.tokens), listed(b.tokens)) << where;
  EXPECT_EQ(listed(a.labels), listed(b.labels)) << where;
  EXPECT_EQ(listed(a.loss_mask), listed(b.loss_mask)) << where;
  EXPECT_EQ(listed(a.positions), listed(b.positions)) << where;
  EXPECT_EQ(listed(a.document_start), listed(b.document_start)) << where;
  EXPECT_EQ(listed(a.sample_ids), listed(b.sample_ids)) << where;
}

TEST(BatchLoader, GivesWhatReadBatchGivesWhereverItIsAsked) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (const auto* type : {"single", "cyclic"})
    for (std::int64_t workers = 0; workers < 4; ++workers)
      for (int rank = 0; rank < 3; ++rank) {
        const BatchShare share{2, rank, 3};
        Counted data(60000);
        data.slow = workers == 3;
        const auto order = order_of(type, 59, share), alone = order_of(type, 59, share);
        BatchLoader loader(data, *order, share, workers);
        Batch batch(share.samples, length), expected(share.samples, length);
        std::int64_t consumed = 0;
        for (int i = 0; i < 40; ++i) {
          // Mostly the next one; sometimes a step is skipped, or a place is read again.
          if (random() % 8 == 0) consumed = static_cast<std::int64_t>(random() % 9) * share.of_all_ranks();
          if (std::string(type) == "single" && consumed + share.of_all_ranks() > 59) consumed = 0;
          read_batch(data, *alone, consumed, rank, share.ranks, expected);
          loader.read(consumed, batch);
          expect_same(batch, expected,
                      text(type, ", ", workers, " workers, rank ", rank, ", read ", i, ", seed ", seed));
          consumed += share.of_all_ranks();
        }
      }
}

TEST(BatchLoader, ReadsAheadAsFarAsItsQueueGoesAndNoFarther) {
  const BatchShare share{3, 0, 1};
  for (const std::int64_t workers : {1, 2}) {
    Counted data(1000);
    const auto order = order_of("single", 1000, share);
    BatchLoader loader(data, *order, share, workers);
    EXPECT_EQ(data.reads(), 0) << "nothing is asked for yet";
    Batch batch(share.samples, length);
    const auto ahead = workers * BatchLoader::batches_ahead_of_worker;
    for (std::int64_t taken = 1; taken <= 20; ++taken) {
      loader.read((taken - 1) * share.samples, batch);
      // While the step computes, all that fits is read: a step never waits for a source that is faster than it.
      ASSERT_TRUE(data.wait_for((taken + ahead) * share.samples)) << workers << " workers, step " << taken;
      ASSERT_EQ(data.reads(), (taken + ahead) * share.samples);
    }
  }
}

TEST(BatchLoader, WithoutWorkersReadsInTheCallAndNothingElse) {
  const BatchShare share{3, 0, 1};
  const Counted data(1000);
  const auto order = order_of("single", 1000, share);
  BatchLoader loader(data, *order, share, 0);
  Batch batch(share.samples, length);
  for (std::int64_t taken = 1; taken <= 5; ++taken) {
    loader.read((taken - 1) * share.samples, batch);
    EXPECT_EQ(data.reads(), taken * share.samples);
  }
}

TEST(BatchLoader, ThrowsAnErrorAtTheBatchThatHasItAndNotBefore) {
  const BatchShare share{2, 1, 2};
  for (const std::int64_t workers : {0, 1, 3}) {
    Counted data(1000);
    data.broken = 15;  // of rank 1, in the micro-batch after 12 samples
    const auto order = order_of("single", 1000, share);
    BatchLoader loader(data, *order, share, workers);
    Batch batch(share.samples, length);
    for (std::int64_t consumed = 0; consumed < 12; consumed += 4) loader.read(consumed, batch);
    const auto before = batch;
    for (int again = 0; again < 2; ++again) expect_refused([&] { loader.read(12, batch); }, {"sample 15 is damaged"});
    if (workers > 0) expect_same(batch, before, "the caller's batch when there is an error");
    loader.read(16, batch);
    EXPECT_EQ(listed(batch.sample_ids), (std::vector<std::int64_t>{18, 19})) << workers;
    data.broken = -1;
    loader.read(12, batch);
    EXPECT_EQ(listed(batch.sample_ids), (std::vector<std::int64_t>{14, 15})) << workers;
  }
}

TEST(BatchLoader, NotesBadSamplesWithTheBatchThatHasThemAndFillsTheirPlaces) {
  const BatchShare share{3, 1, 2};
  for (const std::int64_t workers : {0, 1, 3})
    for (const bool unreadable : {false, true}) {
      Counted data(1000);
      data.bad = {3, 10, 11, 22, 24};  // 3, 10, 11 and 22 are of rank 1
      data.unreadable = unreadable;
      const auto order = order_of("single", 1000, share);
      BatchLoader loader(data, *order, share, workers, BatchLoader::OnBadSample::note);
      Batch batch(share.samples, length), good(share.samples, length);
      for (std::int64_t consumed = 0; consumed < 60; consumed += 6) {
        loader.read(consumed, batch);
        SampleDigest digest;
        std::vector<std::int64_t> bad;
        for (std::int64_t row = 0; row < 3; ++row) {
          const auto number = consumed + 3 + row;
          digest.add(number, number);
          EXPECT_EQ(batch.sample_ids[static_cast<std::size_t>(row)], number);
          if (data.bad.count(number) > 0) {
            bad.push_back(number);
            EXPECT_EQ(batch.sample(row).tokens[1], 0);
            EXPECT_EQ(batch.sample(row).positions[4], 4);
          } else {
            EXPECT_EQ(batch.sample(row).tokens[1], 100 * number + 1);
          }
        }
        EXPECT_EQ(loader.contents().digest, digest);
        ASSERT_EQ(loader.contents().bad.size(), bad.size()) << consumed;
        for (std::size_t i = 0; i < bad.size(); ++i) {
          EXPECT_EQ(loader.contents().bad[i].index, bad[i]);
          EXPECT_EQ(loader.contents().bad[i].reason, text("sample ", bad[i], " is bad"));
        }
      }
      BatchLoader strict(data, *order, share, workers);
      if (unreadable) {
        EXPECT_THROW(strict.read(0, batch), IoError);
      } else {
        EXPECT_THROW(strict.read(0, batch), BadSampleError);
      }
    }
}

TEST(SampleDigest, DoesNotDependOnTheOrderAndSeesALostAnExchangedAndARepeatedSample) {
  const auto of = [](const std::vector<std::pair<std::int64_t, std::int64_t>>& samples) {
    SampleDigest digest;
    for (const auto& [number, index] : samples) digest.add(number, index);
    return digest;
  };
  const auto all = of({{0, 5}, {1, 7}, {2, 9}});
  EXPECT_EQ(of({{2, 9}, {0, 5}, {1, 7}}), all);
  EXPECT_FALSE(of({{0, 5}, {1, 7}}) == all);
  EXPECT_FALSE(of({{0, 5}, {1, 7}, {2, 7}}) == all);
  EXPECT_FALSE(of({{0, 7}, {1, 5}, {2, 9}}) == all);
  EXPECT_NE(of({{0, 5}}).after(all.after(0)), all.after(of({{0, 5}}).after(0)));
  // Philox4x32-10 with counter (number, index) and key 0, as docs/metrics.md says.
  EXPECT_EQ(of({{0, 0}}).low, 0x6627e8d5U);
  EXPECT_EQ(of({{0, 0}}).high, 0xe169c58dU);
}

TEST(BatchLoader, TellsTheEndOfTheDatasetWhenItIsReached) {
  const BatchShare share{2, 0, 1};
  for (const std::int64_t workers : {0, 2}) {
    const Counted data(6);
    const auto order = order_of("single", 6, share);
    BatchLoader loader(data, *order, share, workers);
    Batch batch(share.samples, length);
    for (std::int64_t consumed = 0; consumed < 6; consumed += 2) loader.read(consumed, batch);
    expect_refused([&] { loader.read(6, batch); }, {"sample 6 is wanted", "has 6", "cyclic"});
  }
}

TEST(BatchLoader, TakesBatchesOfItsShapeOnly) {
  const Counted data(100);
  const auto order = order_of("single", 100, {2, 0, 1});
  BatchLoader loader(data, *order, {2, 0, 1}, 1);
  Batch fewer(1, length), longer(2, length + 1);
  EXPECT_THROW(loader.read(0, fewer), ShapeError);
  EXPECT_THROW(loader.read(0, longer), ShapeError);
}

TEST(BatchLoader, AsksASamplerInOrderThoughSeveralRead) {
  class Ascending final : public Sampler {
   public:
    std::int64_t index(std::int64_t consumed) const override {
      if (consumed % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // another could overtake
      if (consumed < last_.exchange(consumed)) ++backwards;
      return consumed;
    }
    mutable std::atomic<std::int64_t> last_ = 0, backwards = 0;
  };
  Counted data(100000);
  data.slow = true;
  const Ascending order;
  BatchLoader loader(data, order, {2, 0, 1}, 4);
  Batch batch(2, length);
  for (std::int64_t consumed = 0; consumed < 200; consumed += 2) loader.read(consumed, batch);
  EXPECT_EQ(order.backwards, 0);
}

TEST(NoTokens, IsOneDocumentOfNothing) {
  const NoTokens none(7, 4);
  EXPECT_EQ(none.samples(), 7);
  EXPECT_TRUE(none.one_document_each());
  Batch batch(2, 4);
  for (auto* ids : {&batch.tokens, &batch.labels, &batch.positions, &batch.document_start})
    std::fill(ids->begin(), ids->end(), 99);
  std::fill(batch.loss_mask.begin(), batch.loss_mask.end(), 1.0F);
  read_batch(none, AnyOrder(), 1000000, 1, 2, batch);
  EXPECT_EQ(listed(batch.tokens), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(listed(batch.labels), std::vector<std::int32_t>(8, -1));
  EXPECT_EQ(listed(batch.loss_mask), std::vector<float>(8, 0));
  EXPECT_EQ(listed(batch.positions), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(listed(batch.document_start), std::vector<std::int32_t>(8, 0));
  EXPECT_EQ(listed(batch.sample_ids), (std::vector<std::int64_t>{1000002, 1000003}));
}

/// Samples of different lengths, with positions of three axes, some boxes and any number of pixels.
class Ragged final : public Dataset {
 public:
  std::int64_t samples() const override { return 1000; }
  std::int64_t seq_length() const override { return 20; }
  const BatchFields& fields() const override {
    static const BatchFields all = [] {
      auto made = token_fields();
      made[3].width = 3;
      made.push_back({.name = "box", .type = DType::int64, .extent = FieldExtent::sample, .width = 2});
      made.push_back(
          {.name = "pixels", .type = DType::float32, .extent = FieldExtent::own, .width = 4, .most_rows = 6});
      made.push_back({.name = "visible", .type = DType::uint8, .extent = FieldExtent::pair});
      return made;
    }();
    return all;
  }
  bool extents_vary() const override { return true; }
  static std::int64_t tokens_of(std::int64_t index) { return 1 + index * 7 % 17; }
  static std::int64_t pixels_of(std::int64_t index) { return index * 5 % 7; }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t> rows) const override {
    if (index == bad) throw BadSampleError("it has no end");
    rows[7] = pixels_of(index);
    return tokens_of(index);
  }
  void read(std::int64_t index, const SampleView& out) const override {
    if (index == bad || index == damaged) throw BadSampleError("it cannot be read");
    const auto number = static_cast<std::int32_t>(index);
    std::fill(out.tokens.begin(), out.tokens.end(), number);
    std::fill(out.labels.begin(), out.labels.end(), -1);
    std::fill(out.loss_mask.begin(), out.loss_mask.end(), 0.0F);
    for (std::size_t i = 0; i < out.positions.size(); ++i) out.positions[i] = number + static_cast<std::int32_t>(i);
    std::fill(out.document_start.begin(), out.document_start.end(), 0);
    std::fill(out.visible.begin(), out.visible.end(), static_cast<std::uint8_t>(index % 2));
    out.field<std::int64_t>("box", 0)[1] = -index;
    const auto pixels = out.field<float>("pixels", 0);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(number) + static_cast<float>(i) / 64;
  }
  std::int64_t bad = -1, damaged = -1;  // damaged: its extents are known
};

// Its rows would have no values: a model could not take them.
TEST(BatchLoader, ASampleThatCannotBeReadHasNoRowsOfItsOwn) {
  const BatchShare share{.samples = 3};
  Ragged data;
  const auto order = order_of("single", 1000, share);
  Batch whole(data.fields(), 3, 20), batch = whole;
  BatchLoader(data, *order, share, 0).read(3, whole);
  ASSERT_GT(whole.field<float>("pixels", 1).size(), 0U);
  data.damaged = 4;
  for (const std::int64_t workers : {0, 2}) {
    BatchLoader loader(data, *order, share, workers, BatchLoader::OnBadSample::note);
    loader.read(3, batch);
    ASSERT_EQ(loader.contents().bad.size(), 1U);
    EXPECT_EQ(loader.contents().bad[0].index, 4);
    EXPECT_TRUE(batch.field<float>("pixels", 1).empty());
    EXPECT_EQ(batch.seq_length, whole.seq_length);
    for (const std::int64_t row : {0, 2}) {
      EXPECT_EQ(listed(batch.field<float>("pixels", row)), listed(whole.field<float>("pixels", row)));
      EXPECT_EQ(listed(samples_of<TokenBatch>(batch, row, 1).tokens),
                listed(samples_of<TokenBatch>(whole, row, 1).tokens));
    }
  }
}

TEST(BatchLoader, GivesEachMicroBatchTheLengthOfItsLongestSampleAndEachSampleItsOwnRows) {
  const BatchShare share{.samples = 3, .length_multiple = 4};
  const Ragged data;
  const auto order = order_of("single", 1000, share);
  for (const std::int64_t workers : {0, 2}) {
    BatchLoader loader(data, *order, share, workers);
    Batch batch(data.fields(), 3, 20);
    for (const std::int64_t consumed : {0, 3, 6, 90, 93, 3}) {
      loader.read(consumed, batch);
      std::int64_t longest = 0;
      for (auto i = consumed; i < consumed + 3; ++i) longest = std::max(longest, Ragged::tokens_of(i));
      const auto padded = std::min<std::int64_t>(20, (longest + 3) / 4 * 4);
      ASSERT_EQ(batch.seq_length, padded);
      const auto all = batch.view();
      EXPECT_EQ(all.position_axes(), 3);
      for (std::int64_t row = 0; row < 3; ++row) {
        const auto index = consumed + row;
        const auto one = samples_of<TokenBatch>(all, row, 1);
        const auto number = static_cast<std::int32_t>(index);
        EXPECT_EQ(listed(one.tokens), std::vector<std::int32_t>(static_cast<std::size_t>(padded), number));
        EXPECT_EQ(static_cast<std::int64_t>(one.positions.size()), 3 * padded);
        EXPECT_EQ(one.positions.back(), index + 3 * padded - 1);
        EXPECT_EQ(listed(one.visible), std::vector<std::uint8_t>(static_cast<std::size_t>(padded * padded), index % 2));
        EXPECT_EQ(one.field<std::int64_t>("box")[1], -index);
        EXPECT_EQ(one.sample_ids[0], index);
        const auto pixels = all.field<float>("pixels", row);
        ASSERT_EQ(static_cast<std::int64_t>(pixels.size()), 4 * Ragged::pixels_of(index));
        for (std::size_t i = 0; i < pixels.size(); ++i)
          EXPECT_EQ(pixels[i], static_cast<float>(number) + static_cast<float>(i) / 64);
        EXPECT_EQ(one.field<float>("pixels").data(), pixels.data());
      }
      std::int64_t rows = 0;
      for (auto i = consumed; i < consumed + 3; ++i) rows += Ragged::pixels_of(i);
      EXPECT_EQ(static_cast<std::int64_t>(all.field<float>("pixels").size()), 4 * rows);
    }
  }
}

TEST(BatchLoader, ABadSampleOfVaryingExtentsHasNoRows) {
  const BatchShare share{.samples = 3};
  Ragged data;
  data.bad = 4;
  const auto order = order_of("single", 1000, share);
  Batch batch(data.fields(), 3, 20);
  BatchLoader strict(data, *order, share, 0), tolerant(data, *order, share, 0, BatchLoader::OnBadSample::note);
  EXPECT_THROW(strict.read(3, batch), BadSampleError);
  tolerant.read(3, batch);
  ASSERT_EQ(tolerant.contents().bad.size(), 1U);
  EXPECT_EQ(tolerant.contents().bad[0].index, 4);
  EXPECT_TRUE(batch.view().field<float>("pixels", 1).empty());
  EXPECT_EQ(batch.view().field<std::int64_t>("box", 1)[1], 0);
  EXPECT_EQ(batch.sample(1).tokens[0], 0);
  EXPECT_EQ(batch.sample(2).tokens[0], 5);
}

/// The chosen row of a pair is always followed by its rejected row, on every data-parallel rank.
TEST(BatchLoader, FillsTwoRowsWithEachPairAndCountsPairs) {
  for (const bool varies : {false, true})
    for (const std::int64_t workers : {0, 2})
      for (int rank = 0; rank < 2; ++rank) {
        const PairsOfRows data(varies, 40);
        const BatchShare share{.samples = 3, .rank = rank, .ranks = 2};
        const auto order = order_of("single", 40, share);
        BatchLoader loader(data, *order, share, workers);
        Batch batch(data.fields(), 6, 16), expected(data.fields(), 6, 16);
        for (const std::int64_t consumed : {0, 6, 12, 0}) {
          loader.read(consumed, batch);
          read_batch(data, *order, consumed, rank, 2, expected);
          expect_same(batch, expected, text(varies, workers, rank, consumed));
          std::int64_t longest = 0;
          for (std::int64_t row = 0; row < 6; ++row) {
            const auto index = consumed + rank * 3 + row / 2;
            const auto one = samples_of<TokenBatch>(batch, row, 1);
            EXPECT_EQ(one.sample_ids[0], 2 * index + row % 2);
            for (std::int64_t t = 0; t < PairsOfRows::tokens_of(index, row % 2); ++t)
              EXPECT_EQ(one.tokens[static_cast<std::size_t>(t)], PairsOfRows::token(index, row % 2, t));
            longest = std::max(longest, PairsOfRows::tokens_of(index, row % 2));
          }
          EXPECT_EQ(batch.seq_length, varies ? longest : 16);
          EXPECT_EQ(loader.contents().digest, [&] {
            SampleDigest digest;
            for (std::int64_t i = 0; i < 3; ++i) digest.add(consumed + rank * 3 + i, consumed + rank * 3 + i);
            return digest;
          }());
        }
        Batch torn(data.fields(), 5, 16), single(data.fields(), 3, 16);
        EXPECT_THROW(loader.read(0, single), ShapeError);
        EXPECT_THROW(read_batch(data, *order, 0, rank, 2, torn), ShapeError);
      }
}

TEST(BatchView, RefusesFieldsThatThereAreNot) {
  const Ragged data;
  const Batch batch(data.fields(), 3, 20);
  EXPECT_THROW(batch.view().field<float>("sound"), BugError);
  EXPECT_THROW(batch.view().field<std::int32_t>("pixels"), BugError);
  EXPECT_THROW(batch.view(2).field<float>("pixels", 2), BugError);
  EXPECT_THROW(TokenBatch().field<float>("pixels"), BugError);
  EXPECT_THROW(Batch(batch).resize(21), BugError);
  EXPECT_EQ(bytes_of(token_fields(), 3, 20), 3 * (5 * 4 * 20 + 8));
  EXPECT_EQ(bytes_of(data.fields(), 3, 20), 3 * (5 * 4 * 20 + 8 + 2 * 4 * 20 + 16 + 6 * 4 * 4 + 20 * 20));
}

TEST(BatchView, SharesTheMemoryOfTheBatchByName) {
  Batch batch(3, 2);
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto one = batch.sample(row);
    EXPECT_EQ(one.samples, 1);
    one.tokens[1] = static_cast<std::int32_t>(10 + row);
    one.labels[1] = static_cast<std::int32_t>(20 + row);
    one.positions[1] = static_cast<std::int32_t>(30 + row);
    one.document_start[1] = static_cast<std::int32_t>(40 + row);
    one.loss_mask[1] = static_cast<float>(50 + row);
    one.sample_ids[0] = 60 + row;
  }
  const auto two = batch.view(2);
  EXPECT_EQ(two.samples, 2);
  EXPECT_EQ(two.seq_length, 2);
  EXPECT_EQ(listed(Batch(batch).tokens), (std::vector<std::int32_t>{0, 10, 0, 11, 0, 12}));
  EXPECT_EQ(two.tokens.size(), 4U);
  EXPECT_EQ(two.tokens[3], 11);
  EXPECT_EQ(two.labels[3], 21);
  EXPECT_EQ(two.positions[3], 31);
  EXPECT_EQ(two.document_start[3], 41);
  EXPECT_EQ(two.loss_mask[3], 51);
  EXPECT_EQ(two.sample_ids[1], 61);
  EXPECT_TRUE(two.visible.empty());
  EXPECT_EQ(batch.view().tokens.data(), batch.tokens.data());
  EXPECT_THROW(batch.view(4), BugError);
  EXPECT_THROW(batch.sample(3), BugError);
}

}  // namespace
}  // namespace tessera::data
