// The first ranks as a world of their own, one after the other.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/ranks/ranks.h"

namespace tessera::comm {
namespace {

/// The sum of the ranks' own numbers on `part`, over the whole of it and over its last two ranks.
void expect_sums(const World& part) {
  float sum = static_cast<float>(part.rank() + 1);
  part.all().all_reduce({&sum, 1}, "test");
  EXPECT_EQ(sum, static_cast<float>(part.size() * (part.size() + 1)) / 2);
  if (part.size() < 2 || part.rank() < part.size() - 2) return;
  const std::vector<int> last = {part.size() - 2, part.size() - 1};
  float both = static_cast<float>(part.rank());
  part.group("last", last).all_reduce({&both, 1}, "test");
  EXPECT_EQ(both, static_cast<float>(last[0] + last[1]));
}

TEST(PartOfAWorld, HasItsOwnNumbersAndGroups) {
  for (const int ranks : {1, world().size(), 2, 2, world().size() - 1, 1}) {
    if (world().rank() < ranks) {
      const World part(world(), ranks);
      EXPECT_EQ(part.size(), ranks);
      EXPECT_EQ(part.rank(), world().rank());
      EXPECT_EQ(part.local_size(), ranks);
      expect_sums(part);
    }
    expect_sums(world());
  }
}

}  // namespace
}  // namespace tessera::comm
