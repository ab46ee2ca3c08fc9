// Boxes of tensors that other ranks own, as the files of another program's format need them.
#include "framework/training/saving/box_exchange.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "tests/random_boxes.h"
#include "tests/ranks/ranks.h"

namespace tessera::training {
namespace {

Box random_box(const Shape& shape, std::mt19937& random) {
  auto box = Box::whole(shape);
  for (std::size_t dim = 0; dim < box.extent.size(); ++dim) {
    box.begin[dim] = static_cast<std::int64_t>(random() % static_cast<std::size_t>(box.extent[dim]));
    box.extent[dim] =
        1 + static_cast<std::int64_t>(random() % static_cast<std::size_t>(box.extent[dim] - box.begin[dim]));
  }
  return box;
}

class Ranges {
 public:
  std::vector<checkpoint::TensorRange> all;

  /// With the positions of the elements in the tensor as values, or -1.
  void add(const std::string& name, const Shape& shape, const Box& box, bool filled) {
    auto& elements = memory_.emplace_back(static_cast<std::size_t>(box.elements()), -1.F);
    all.push_back({name, shape, box.begin, Tensor(std::span(elements), Shape(box.extent))});
    if (filled) for_each(all.size() - 1, [&](float& element, float position) { element = position; });
  }
  template <class Visit>
  void for_each(std::size_t index, const Visit& visit) {
    const auto& range = all[index];
    const auto box = Box::of(range.offsets, range.tensor.shape());
    auto& elements = memory_[index];
    auto place = box.begin;
    for (auto& element : elements) {
      visit(element, static_cast<float>(position_in(Box::whole(range.global_shape), place)));
      for (auto dim = place.size(); dim-- > 0;) {
        if (++place[dim] < box.begin[dim] + box.extent[dim]) break;
        place[dim] = box.begin[dim];
      }
    }
  }

 private:
  std::deque<std::vector<float>> memory_;
};

TEST(BoxExchange, EveryRankGetsTheBoxesThatItWantsFromWhoeverOwnsThem) {
  const auto group = world().all();
  const auto seed =
      static_cast<unsigned>(std::stoul(group.broadcast(std::to_string(std::random_device()()), 0, "seed")));
  std::mt19937 common(seed), own(seed + 1 + static_cast<unsigned>(group.rank()));
  for (int round = 0; round < 30; ++round) {
    const auto told = text("seed ", seed, " round ", round);
    Ranges owned, wanted;
    for (int t = 0; t < 4; ++t) {
      std::vector<std::int64_t> dims(1 + common() % 3);
      for (auto& extent : dims) extent = 1 + static_cast<std::int64_t>(common() % 40);
      const Shape shape(dims);
      std::vector<Box> boxes;
      divide_at_random(Box::whole(shape), common, boxes);
      for (const auto& box : boxes)
        if (common() % static_cast<unsigned>(group.size()) == static_cast<unsigned>(group.rank()))
          owned.add(text("t", t), shape, box, true);
      for (auto wants = own() % 3; wants > 0; --wants) wanted.add(text("t", t), shape, random_box(shape, own), false);
    }
    wanted.add("nobody's", Shape{3}, Box::whole(Shape{3}), false);
    // The smaller, the more messages: 32 KiB for each rank at least.
    const auto filled = deliver_boxes(group, owned.all, wanted.all, 1);
    ASSERT_EQ(filled.size(), wanted.all.size());
    EXPECT_EQ(filled.back(), 0) << told;
    for (std::size_t i = 0; i + 1 < filled.size(); ++i) {
      EXPECT_EQ(filled[i], wanted.all[i].tensor.elements()) << told;
      wanted.for_each(i, [&](float element, float position) { ASSERT_EQ(element, position) << told; });
    }
  }
}

TEST(BoxExchange, ABoxLargerThanAMessageComesInSeveral) {
  const auto group = world().all();
  Ranges owned, wanted;
  const Shape shape{1, 50'000, 2};  // 400 KB in messages of 32 KiB
  if (group.rank() == 1) owned.add("t", shape, Box::whole(shape), true);
  if (group.rank() != 1) wanted.add("t", shape, Box::whole(shape), false);
  const auto filled = deliver_boxes(group, owned.all, wanted.all, 1);
  ASSERT_EQ(filled, std::vector<std::int64_t>(wanted.all.size(), 100'000));
  for (std::size_t i = 0; i < filled.size(); ++i)
    wanted.for_each(i, [&](float element, float position) { ASSERT_EQ(element, position); });
}

}  // namespace
}  // namespace tessera::training
