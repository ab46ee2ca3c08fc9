// Passages in and out of the cut regions: the values that Megatron-LM's own tests ask for, and every one of them, both
// ways, against a reckoning by one process.
#include "framework/parallel/tensor_parallel_ops.h"

#include <functional>
#include <numeric>

#include "tests/parallel/ranks/cut.h"
#include "tests/story.h"

namespace tessera::parallel {
namespace {

std::vector<float> times(int count, int value) {
  return std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(value));
}

std::vector<float> joined(const std::vector<std::vector<float>>& parts) {
  std::vector<float> out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// The notebook's layout: tensor 4, pipeline 2. Ranks 0 to 3 share a stage, and ranks 4 to 7.
class OnTensor4Pipeline2 : public testing::Test {
 protected:
  autograd::Var input(std::vector<float> values, const Shape& shape) {
    kept_.push_back(std::move(values));
    return work.input(kept_.back(), shape);
  }
  /// 0 0 .. 1 1 .. 2 2 .. 3 3 .., and 4 more on ranks 4 to 7.
  std::vector<float> counted(int each) const {
    const int first = rank < 4 ? 0 : 4;
    return joined({times(each, first), times(each, first + 1), times(each, first + 2), times(each, first + 3)});
  }

  const ProcessGroups groups = initialize_model_parallel(world(), 4, 2);
  const int rank = world().rank(), place = rank % 4;
  const float summed = rank < 4 ? 6 : 22;
  Work work;

 private:
  std::deque<std::vector<float>> kept_;
};

TEST_F(OnTensor4Pipeline2, CopyKeepsTheValueAndSumsTheGradients) {
  const auto x = input(times(1, rank), {1});
  const auto y = copy_to_tensor_region(x, groups.tensor, "test");
  EXPECT_EQ(values_of(y), times(1, rank));
  EXPECT_EQ(work.backward(y, times(1, rank), x), std::vector<float>{summed});
}

TEST_F(OnTensor4Pipeline2, ReduceSumsTheValuesAndKeepsTheGradient) {
  const auto x = input(times(1, rank), {1});
  const auto y = reduce_from_tensor_region(x, groups.tensor, "test");
  EXPECT_EQ(values_of(y), std::vector<float>{summed});
  EXPECT_EQ(values_of(x), times(1, rank));
  EXPECT_EQ(work.backward(y, times(1, rank), x), times(1, rank));
}

TEST_F(OnTensor4Pipeline2, ScatterToTheTensorRegionTakesAColumnAndGathersGradients) {
  const auto values = made(8 * 4, 1);
  const auto x = input(values, {8, 4});
  const auto y = scatter_to_tensor_region(x, groups.tensor, "test");
  EXPECT_EQ(y.shape(), Shape({8, 1}));
  EXPECT_EQ(values_of(y), part_of(values, {8, 4}, 1, place, 4));
  const auto flat = input(times(32, 0), {32});
  const auto part = scatter_to_tensor_region(flat, groups.tensor, "test");
  EXPECT_EQ(work.backward(part, times(8, rank), flat), counted(8));
}

TEST_F(OnTensor4Pipeline2, GatherFromTheTensorRegionJoinsAndTakesAColumnOfTheGradient) {
  const auto flat = input(times(8, rank), {8});
  EXPECT_EQ(values_of(gather_from_tensor_region(flat, groups.tensor, "test")), counted(8));
  const auto x = input(times(8, rank), {8, 1});
  const auto y = gather_from_tensor_region(x, groups.tensor, "test");
  const auto slope = made(8 * 4, 2);
  EXPECT_EQ(work.backward(y, slope, x), part_of(slope, {8, 4}, 1, place, 4));
}

TEST_F(OnTensor4Pipeline2, ScatterToTheSequenceRegionTakesTokensAndGathersGradients) {
  const auto values = made(8 * 4, 3);
  const auto x = input(values, {1, 8, 4});
  const auto y = scatter_to_sequence_region(x, groups.tensor, "test");
  EXPECT_EQ(values_of(y), std::vector<float>(values.begin() + place * 8, values.begin() + place * 8 + 8));
  const auto tokens = input(times(16, 0), {1, 16, 1});
  const auto part = scatter_to_sequence_region(tokens, groups.tensor, "test");
  EXPECT_EQ(work.backward(part, times(4, rank), tokens), counted(4));
}

TEST_F(OnTensor4Pipeline2, GatherFromTheSequenceRegionJoinsAndSumsTheGradientOfItsTokens) {
  const auto x = input(times(4, rank), {1, 1, 4});
  const auto y = gather_from_sequence_region(x, groups.tensor, "test");
  EXPECT_EQ(values_of(y), counted(4));
  const auto slope = joined({times(4, 0), times(4, 1), times(4, 2), times(4, 3)});
  EXPECT_EQ(work.backward(y, slope, x), times(4, 4 * place));
}

TEST_F(OnTensor4Pipeline2, GatherFromTheSequenceRegionBeforeWholeWorkTakesTheGradientOfItsTokens) {
  const auto x = input(times(4, rank), {1, 1, 4});
  const auto y = gather_from_sequence_region(x, groups.tensor, "test", false);
  const auto slope = joined({times(4, 0), times(4, 1), times(4, 2), times(4, 3)});
  EXPECT_EQ(work.backward(y, slope, x), times(4, place));
}

TEST_F(OnTensor4Pipeline2, ReduceScatterToTheSequenceRegionSumsItsTokensAndGathersGradients) {
  const auto values = joined({times(4, 0), times(4, 1), times(4, 2), times(4, 3)});
  const auto x = input(values, {1, 4, 4});
  const auto y = reduce_scatter_to_sequence_region(x, groups.tensor, "test");
  EXPECT_EQ(values_of(y), times(4, 4 * place));
  EXPECT_EQ(work.backward(y, times(4, rank), x), counted(4));
}

TEST_F(OnTensor4Pipeline2, AGradientThatReachesAValueByTwoWaysIsAddedUp) {
  const auto x = input(times(1, rank), {1});
  const auto y = copy_to_tensor_region(x, groups.tensor, "test"), z = copy_to_tensor_region(x, groups.tensor, "test");
  const auto one = times(1, 1);
  auto seed = one;
  work.tape.seed(z, Tensor(std::span(seed), {1}));
  EXPECT_EQ(work.backward(y, one, x), times(1, 8));
}

TEST_F(OnTensor4Pipeline2, AValueThatNobodyUsesSendsNothingBackwards) {
  const auto x = input(times(8, rank), {8});
  const auto unused = gather_from_tensor_region(x, groups.tensor, "test");
  const auto y = copy_to_tensor_region(x, groups.tensor, "test");
  EXPECT_EQ(work.backward(y, times(8, 1), x), times(8, 4));
}

TEST_F(OnTensor4Pipeline2, ExtentsThatDoNotDivideAreRefusedByName) {
  const auto x = input(times(6, 1), {1, 1, 6});
  const auto story = story_of([&] { scatter_to_tensor_region(x, groups.tensor, "linear_fc2"); });
  EXPECT_TRUE(says(story, "linear_fc2") && says(story, "does not divide by 4")) << story;
}

// Every mapping, in both directions, in every type, on groups of every size.

enum class Done { keep, sum, part, joined, part_of_sum };

struct Way {
  const char* name;
  std::function<autograd::Var(const autograd::Var&, const comm::Communicator&)> run;
  std::size_t dim;
  Done there, back;
};

const std::vector<Way>& ways() {
  using V = const autograd::Var&;
  using C = const comm::Communicator&;
  static const std::vector<Way> all = {
      {"copy", [](V x, C g) { return copy_to_tensor_region(x, g, "t"); }, 0, Done::keep, Done::sum},
      {"reduce", [](V x, C g) { return reduce_from_tensor_region(x, g, "t"); }, 0, Done::sum, Done::keep},
      {"scatter", [](V x, C g) { return scatter_to_tensor_region(x, g, "t"); }, 2, Done::part, Done::joined},
      {"gather", [](V x, C g) { return gather_from_tensor_region(x, g, "t"); }, 2, Done::joined, Done::part},
      {"scatter tokens", [](V x, C g) { return scatter_to_sequence_region(x, g, "t"); }, 1, Done::part, Done::joined},
      {"gather tokens", [](V x, C g) { return gather_from_sequence_region(x, g, "t"); }, 1, Done::joined,
       Done::part_of_sum},
      {"gather tokens for whole work", [](V x, C g) { return gather_from_sequence_region(x, g, "t", false); }, 1,
       Done::joined, Done::part},
      {"reduce-scatter tokens", [](V x, C g) { return reduce_scatter_to_sequence_region(x, g, "t"); }, 1,
       Done::part_of_sum, Done::joined}};
  return all;
}

Shape after(Done done, std::size_t dim, const Shape& shape, int members) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  if (done == Done::joined) dims[dim] *= members;
  if (done == Done::part || done == Done::part_of_sum) dims[dim] /= members;
  return Shape(std::span<const std::int64_t>(dims));
}

/// What member `rank` has after it, when member m gave of[m].
std::vector<float> reckoned(Done done, std::size_t dim, const Shape& shape, const std::vector<std::vector<float>>& of,
                            int rank) {
  const auto members = static_cast<int>(of.size());
  auto sum = of[0];
  for (std::size_t m = 1; m < of.size(); ++m)
    std::transform(sum.begin(), sum.end(), of[m].begin(), sum.begin(), std::plus<>());
  if (done == Done::keep) return of[static_cast<std::size_t>(rank)];
  if (done == Done::sum) return sum;
  if (done == Done::part) return part_of(of[static_cast<std::size_t>(rank)], shape, dim, rank, members);
  if (done == Done::part_of_sum) return part_of(sum, shape, dim, rank, members);
  std::size_t piece = 1;
  for (std::size_t k = dim; k < shape.rank(); ++k) piece *= static_cast<std::size_t>(shape[k]);
  std::vector<float> out;
  for (std::size_t first = 0; first < of[0].size(); first += piece)
    for (const auto& one : of) out.insert(out.end(), one.data() + first, one.data() + first + piece);
  return out;
}

template <class T>
std::vector<T> as(const std::vector<float>& values) {
  std::vector<T> out;
  for (const auto value : values) out.push_back(T(value));
  return out;
}

template <class T>
std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> out;
  for (const auto value : tensor.as<T>()) out.push_back(static_cast<float>(value));
  return out;
}

template <class T>
void expect_as_by_one_process(const Way& way, const comm::Communicator& group) {
  const Shape shape{2, 8, 16};
  const auto members = group.size();
  const auto shape_after = after(way.there, way.dim, shape, members);
  std::vector<std::vector<float>> given, slopes;
  for (int m = 0; m < members; ++m) {
    given.push_back(made(shape.elements(), m, true));
    slopes.push_back(made(shape_after.elements(), 100 + m, true));
  }
  const auto mine = static_cast<std::size_t>(group.rank());
  Work work;
  auto values = as<T>(given[mine]), slope = as<T>(slopes[mine]);
  const auto x = work.tape.input(Tensor(std::span(values), shape), true);
  const auto y = way.run(x, group);
  EXPECT_EQ(y.shape(), shape_after) << way.name;
  EXPECT_EQ(floats_of<T>(y.value()), reckoned(way.there, way.dim, shape, given, group.rank())) << way.name;
  work.tape.seed(y, Tensor(std::span(slope), shape_after));
  work.tape.backward();
  EXPECT_EQ(floats_of<T>(work.tape.take_grad(x).tensor), reckoned(way.back, way.dim, shape_after, slopes, group.rank()))
      << way.name << " backwards";
}

TEST(EveryMapping, IsWhatOneProcessReckonsOnGroupsOf1And2And4And8InEveryType) {
  for (const int members : {1, 2, 4, 8}) {
    const auto groups = initialize_model_parallel(world(), members);
    ASSERT_EQ(groups.tensor.size(), members);
    for (const auto& way : ways()) {
      expect_as_by_one_process<float>(way, groups.tensor);
      expect_as_by_one_process<bfloat16>(way, groups.tensor);
      expect_as_by_one_process<float16>(way, groups.tensor);
    }
  }
}

}  // namespace
}  // namespace tessera::parallel
