// What lies where in the state: random layouts, whose seed is printed when one fails.
#include "framework/training/state/state_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "framework/kernels/linear.h"

namespace tessera::training {
namespace {

class NoUpdate final : public optim::Optimizer {
 public:
  explicit NoUpdate(std::vector<std::string> names) : names_(std::move(names)) {}
  std::vector<std::string> slots() const override { return names_; }
  void update(const optim::StepScalars&, optim::Block) const override {}

 private:
  std::vector<std::string> names_;
};

/// A model's parameters on one rank, an optimizer and a division over data-parallel ranks.
struct Drawn {
  std::deque<nn::Parameter> parameters;
  std::vector<std::string> state_tensors;
  StateSharing sharing;

  explicit Drawn(unsigned seed) {
    std::mt19937 random(seed);
    const auto below = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
    const auto count = 1 + below(8);
    for (std::int64_t i = 0; i < count; ++i) {
      auto& p = parameters.emplace_back();
      p.name = text("p", i);
      p.global_shape = below(2) == 0 ? Shape{1 + below(300)} : Shape{4 * (1 + below(12)), 4 * (1 + below(12))};
      if (below(3) == 0) p.type = DType::bfloat16;
      if (p.global_shape.rank() == 2) draw_cut(p, below);
      if (below(6) == 0) p.share(nn::GradientSharers::ends);
    }
    for (std::int64_t k = below(4); k > 0; --k) state_tensors.push_back(text("state", k));
    sharing.ranks = static_cast<int>(1 + below(5));
    sharing.distributed_optimizer = below(3) > 0;
    sharing.bucket_elements = below(3) == 0 ? 0 : 1 + below(2000);
  }

  static void draw_cut(nn::Parameter& p, const auto& below) {
    const auto rows = p.global_shape[0], columns = p.global_shape[1];
    switch (below(5)) {
      case 0:
        p.cut = nn::TensorCut::even(0, rows, 1, 2);
        break;
      case 1:
        p.cut = nn::TensorCut::even(1, columns, 1, 2);
        break;
      case 2:
        p.cut = nn::TensorCut::copy(rows);
        break;
      case 3:
        p.cut = {0, {{0, rows / 4, true}, {rows / 2, rows / 4, below(2) == 0}}};
        break;
      default:
        break;
    }
  }

  StateLayout layout(int rank) {
    std::vector<nn::Parameter*> all;
    for (auto& p : parameters) all.push_back(&p);
    const NoUpdate optimizer(state_tensors);
    auto own = sharing;
    own.rank = rank;
    return {all, &optimizer, own};
  }
};

constexpr unsigned layouts = 300;

/// Counts how often each element of an array of `elements` is in one of the ranges.
class Cover {
 public:
  explicit Cover(std::size_t elements) : times_(elements) {}
  void add(std::size_t first, std::size_t count) {
    ASSERT_LE(first + count, times_.size());
    for (auto i = first; i < first + count; ++i) ++times_[i];
  }
  bool each(int wanted) const {
    return std::all_of(times_.begin(), times_.end(), [&](int times) { return times == wanted; });
  }

 private:
  std::vector<int> times_;
};

std::size_t elements_of(const StateLayout& layout, StateArray array) {
  return layout.segment().of(array).bytes / (array == StateArray::rounded_weights ? 2 : sizeof(float));
}

TEST(StateLayout, EveryElementIsInExactlyOneShardOfTheGroup) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    const bool shards = drawn.sharing.shards();
    const auto all = static_cast<std::size_t>(drawn.layout(0).parameters().elements());
    Cover cover(all);
    for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
      const auto layout = drawn.layout(rank);
      std::int64_t end = 0;
      for (const auto& shard : layout.shards()) {
        const auto& range = layout.parameters().ranges()[shard.parameter];
        ASSERT_GE(shard.elements.first, std::max(end, range.first)) << "seed " << seed;
        end = shard.elements.first + shard.elements.count;
        ASSERT_LE(end, range.first + range.padded()) << "seed " << seed;
        ASSERT_TRUE(shard.elements.first % 64 == 0 && shard.elements.count % 64 == 0) << "seed " << seed;
        cover.add(static_cast<std::size_t>(shard.elements.first), static_cast<std::size_t>(shard.elements.count));
      }
    }
    ASSERT_TRUE(cover.each(shards ? 1 : drawn.sharing.ranks)) << "seed " << seed;
  }
}

TEST(StateLayout, ShardsFillTheirArraysWithoutGapsAndOverlaps) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
      const auto layout = drawn.layout(rank);
      Cover masters(elements_of(layout, StateArray::master_weights)),
          state(elements_of(layout, StateArray::optimizer_state));
      for (const auto& shard : layout.shards()) {
        const auto& range = layout.parameters().ranges()[shard.parameter];
        const auto count = static_cast<std::size_t>(shard.elements.count);
        for (std::size_t k = 0; k < drawn.state_tensors.size(); ++k) state.add(layout.state_of(shard, k).first, count);
        if (shard.weights_in == StateArray::master_weights) {
          ASSERT_EQ(range.parameter->type, DType::bfloat16) << "seed " << seed;
          masters.add(shard.weight, count);
        } else {
          ASSERT_EQ(static_cast<std::int64_t>(shard.weight - layout.weight_of(shard.parameter)),
                    shard.elements.first - range.first)
              << "seed " << seed;
          ASSERT_LE(shard.weight + count, elements_of(layout, StateArray::weights)) << "seed " << seed;
        }
      }
      ASSERT_TRUE(masters.each(1) && state.each(1)) << "seed " << seed << ", rank " << rank;
    }
  }
}

TEST(StateLayout, WeightsThatAreHeldWholeFillTheirArray) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    const auto layout = drawn.layout(0);
    Cover weights(elements_of(layout, StateArray::weights));
    for (std::size_t i = 0; i < drawn.parameters.size(); ++i)
      if (!drawn.sharing.shards() || drawn.parameters[i].type == DType::float32)
        weights.add(layout.weight_of(i), static_cast<std::size_t>(layout.parameters().ranges()[i].padded()));
    ASSERT_TRUE(weights.each(1)) << "seed " << seed;
  }
}

TEST(StateLayout, ArraysLieInTheSegmentOneBehindTheOtherThoseThatAreExchangedLast) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    const auto segment = drawn.layout(0).segment();
    std::map<std::size_t, std::size_t> ends;  // by offset, of the header before an exchanged array
    std::size_t sum = 0;
    for (const auto& array : segment.arrays) {
      const auto header = array.exchanged ? StateSegment::alignment : 0;
      ASSERT_EQ(array.offset % StateSegment::alignment, 0U);
      ASSERT_LE(array.offset + array.bytes, array.exchanged ? segment.bytes : segment.own_bytes) << "seed " << seed;
      if (array.exchanged) {
        ASSERT_GE(array.offset, segment.own_bytes + header) << "seed " << seed;
      }
      if (array.bytes > 0) {
        ASSERT_TRUE(ends.emplace(array.offset - header, array.offset + array.bytes).second) << "seed " << seed;
      }
      sum += array.bytes;
    }
    std::size_t end = 0;
    for (const auto& [offset, next] : ends) {
      ASSERT_GE(offset, end) << "seed " << seed;
      ASSERT_LT(offset - end, StateSegment::alignment) << "seed " << seed;
      end = next;
    }
    ASSERT_EQ(drawn.layout(0).bytes().all(), static_cast<std::int64_t>(sum)) << "seed " << seed;
    ASSERT_EQ(segment.of(StateArray::gradients).exchanged, drawn.sharing.ranks > 1) << "seed " << seed;
    ASSERT_FALSE(segment.of(StateArray::optimizer_state).exchanged);
  }
}

TEST(StateLayout, BucketsGatherWhatTheShardsOfAllRanksUpdate) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    if (!drawn.sharing.shards()) continue;
    const auto layout = drawn.layout(0);
    std::map<StateArray, Cover> covers = {
        {StateArray::weights, Cover(elements_of(layout, StateArray::weights))},
        {StateArray::rounded_weights, Cover(static_cast<std::size_t>(layout.parameters().elements()))}};
    std::size_t narrow = 0;
    for (const auto& bucket : layout.buckets()) {
      const auto range = layout.gathered(bucket);
      covers.at(range.array).add(range.first, range.count);
      if (range.array == StateArray::rounded_weights) narrow += range.count;
    }
    ASSERT_TRUE(covers.at(StateArray::weights).each(1)) << "seed " << seed;
    std::size_t wanted = 0;
    for (const auto& range : layout.parameters().ranges())
      if (range.parameter->type != DType::float32) wanted += static_cast<std::size_t>(range.padded());
    ASSERT_EQ(narrow, wanted) << "seed " << seed;
  }
}

TEST(StateLayout, RoundedCopiesFillTheirArrayWithoutOverlaps) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    const bool shards = drawn.sharing.shards();
    const auto layout = drawn.layout(0);
    Cover cover(elements_of(layout, StateArray::rounded_weights));
    for (std::size_t i = 0; i < drawn.parameters.size(); ++i) {
      const auto& range = layout.parameters().ranges()[i];
      const auto& p = drawn.parameters[i];
      const bool narrow = p.type != DType::float32;
      const bool read_as_floats = kernels::multiplies_floats(p.type) && p.global_shape.rank() == 2 && p.shape()[1] >= 2;
      ASSERT_EQ(layout.keeps_rounded(i), narrow && (shards || !read_as_floats)) << "seed " << seed << ", " << i;
      if (layout.keeps_rounded(i)) cover.add(layout.rounded_of(i), static_cast<std::size_t>(range.padded()));
    }
    ASSERT_TRUE(shards || cover.each(1)) << "seed " << seed;  // with shards all parameters have a place
  }
}

/// The elements of an unsharded parameter in a box.
void count_box(const Shape& shape, const Box& box, std::vector<int>& times) {
  const auto columns = shape.rank() == 2 ? shape[1] : 1, width = box.extent.size() == 2 ? box.extent[1] : 1;
  for (std::int64_t r = 0; r < box.extent[0]; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      ++times.at(
          static_cast<std::size_t>((box.begin[0] + r) * columns + (box.begin.size() > 1 ? box.begin[1] + c : 0)));
}

/// How often the ranks' boxes have each element of each unsharded parameter.
std::vector<std::vector<int>> times_in_boxes(Drawn& drawn, StateScope scope) {
  std::vector<std::vector<int>> times;
  for (const auto& p : drawn.parameters) times.emplace_back(static_cast<std::size_t>(p.global_shape.elements()));
  for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
    const auto layout = drawn.layout(rank);
    for (const auto& part : layout.parts(scope))
      for (const auto& box : layout.boxes_of(part))
        count_box(drawn.parameters[part.parameter].global_shape, box, times[part.parameter]);
  }
  return times;
}

TEST(StateLayout, BoxesThatRanksOwnAreEachOwnedElementOnceAndThoseHeldAllThatIsHere) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    const auto owned = times_in_boxes(drawn, StateScope::owned);
    ASSERT_EQ(times_in_boxes(drawn, StateScope::saved), owned) << "seed " << seed;
    const auto held = times_in_boxes(drawn, StateScope::held);
    for (std::size_t i = 0; i < drawn.parameters.size(); ++i) {
      const auto& p = drawn.parameters[i];
      std::vector<int> own(owned[i].size()), here(own.size());
      std::vector<bool> is_owned(static_cast<std::size_t>(p.elements()));
      for (const auto& range : p.owned()) std::fill_n(is_owned.begin() + range.first, range.count, true);
      std::size_t k_here = 0;
      for (const auto& run : nn::global_ranges_of(p))
        for (std::int64_t k = 0; k < run.count; ++k, ++k_here) {
          const auto at = static_cast<std::size_t>(run.first + k);
          here[at] = drawn.sharing.shards() ? 1 : drawn.sharing.ranks;
          own[at] = is_owned[k_here] ? 1 : 0;
        }
      ASSERT_EQ(owned[i], own) << "seed " << seed << ", parameter " << i;
      ASSERT_EQ(held[i], here) << "seed " << seed << ", parameter " << i;
    }
  }
}

TEST(StateLayout, APartOfAShardLiesInItsArraysWhereItLiesInTheShard) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
      const auto layout = drawn.layout(rank);
      const auto shards = layout.shards();
      for (const auto scope : {StateScope::held, StateScope::owned, StateScope::saved})
        for (const auto& part : layout.parts(scope)) {
          const auto first = part.elements.first;
          const auto shard = std::find_if(shards.begin(), shards.end(), [&](const auto& one) {
            return one.elements.first <= first && first < one.elements.first + one.elements.count;
          });
          ASSERT_NE(shard, shards.end()) << "seed " << seed;
          ASSERT_LE(first + part.elements.count, shard->elements.first + shard->elements.count) << "seed " << seed;
          const auto before = static_cast<std::size_t>(first - shard->elements.first);
          ASSERT_EQ(std::tuple(part.parameter, part.weights_in, part.weight, part.state),
                    std::tuple(shard->parameter, shard->weights_in, shard->weight + before, shard->state + before))
              << "seed " << seed;
        }
    }
  }
}

TEST(StateLayout, RanksWithTheSameElementsSaveEquallyManyOfThem) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
      const auto layout = drawn.layout(rank);
      std::int64_t bytes = 0;
      for (const auto& part : layout.parts(StateScope::saved))
        for (const auto& box : layout.boxes_of(part))
          bytes += box.elements() * static_cast<std::int64_t>(sizeof(float) * (1 + drawn.state_tensors.size()));
      ASSERT_EQ(layout.saved_bytes(), bytes) << "seed " << seed;
      least = std::min(least, bytes), most = std::max(most, bytes);
    }
    if (drawn.sharing.shards()) continue;  // each saves its shards
    const auto one = static_cast<std::int64_t>(sizeof(float) * (1 + drawn.state_tensors.size()));
    ASSERT_LE(most - least, one) << "seed " << seed;
  }
}

TEST(StateLayout, OwnedRangesAreThoseElementsAndCountedPadding) {
  for (unsigned seed = 0; seed < layouts; ++seed) {
    Drawn drawn(seed);
    std::int64_t gradients = 0, weights = 0, padding = 0, owned = 0;
    Cover cover(static_cast<std::size_t>(drawn.layout(0).parameters().elements()));
    for (int rank = 0; rank < drawn.sharing.ranks; ++rank) {
      const auto layout = drawn.layout(rank);
      for (const auto& range : layout.owned_gradients()) {
        ASSERT_EQ(range.array, StateArray::gradients);
        gradients += static_cast<std::int64_t>(range.count);
        cover.add(range.first, range.count);
      }
      for (const auto& range : layout.owned_weights()) {
        ASSERT_LE(range.first + range.count, elements_of(layout, range.array)) << "seed " << seed;
        weights += static_cast<std::int64_t>(range.count);
      }
      padding += layout.owned_padding();
    }
    for (const auto& p : drawn.parameters)
      for (const auto& range : p.owned()) owned += range.count;
    ASSERT_EQ(gradients - padding, owned) << "seed " << seed;
    ASSERT_EQ(weights, gradients) << "seed " << seed;
    const bool all_owned = std::all_of(drawn.parameters.begin(), drawn.parameters.end(), [](const auto& p) {
      const auto ranges = p.owned();
      return ranges.size() == 1 && ranges[0].count == p.elements();
    });
    if (all_owned) {
      ASSERT_TRUE(cover.each(1)) << "seed " << seed;  // and with the padding joined
    }
  }
}

TEST(StateLayout, WithoutAnOptimizerThereAreWeightsAlone) {
  Drawn drawn(1);
  std::vector<nn::Parameter*> all;
  for (auto& p : drawn.parameters) all.push_back(&p);
  const StateLayout layout(all, nullptr);
  EXPECT_EQ(layout.bytes().gradients, 0);
  EXPECT_EQ(layout.bytes().optimizer, 0);
  EXPECT_GE(layout.bytes().weights, layout.parameters().elements() * 4);
  EXPECT_TRUE(layout.owned_gradients().empty());
}

TEST(StateLayout, ArraysOfMoreBytesThanThereAreAddressesAreRefused) {
  std::deque<nn::Parameter> huge(4);  // as large as a shape may be
  std::vector<nn::Parameter*> all;
  for (auto& p : huge) {
    p.name = "huge";
    p.global_shape = Shape{std::int64_t{1} << 59};
    all.push_back(&p);
  }
  EXPECT_THROW(StateLayout(all, nullptr), ConfigError);
}

}  // namespace
}  // namespace tessera::training
