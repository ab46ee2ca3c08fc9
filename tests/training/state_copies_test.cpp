// Copies of shards on other ranks: the same update of a copy gives the same bits. Random models, whose seed is printed.
#include "framework/training/guards/state_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "framework/training/guards/state_plan.h"
#include "tests/optim/made.h"
#include "tests/training/stand_in_model.h"

namespace tessera::training {
namespace {

class ModelOfSomeSize final : public StandInModel {
 public:
  explicit ModelOfSomeSize(std::mt19937& draw) {
    const auto below = [&](int end) { return static_cast<std::int64_t>(draw() % static_cast<unsigned>(end)); };
    add("matrix", ParameterRole::matrix, {1 + below(90), 1 + below(70)}, DType::bfloat16);
    add("embedding", ParameterRole::word_embedding, {1 + below(200), 1 + below(64)}, DType::float32);
    add("gain", ParameterRole::norm_gain, {1 + below(99)}, DType::float32);
    add("bias", ParameterRole::expert_bias, {8}, DType::float32);
  }

 private:
  void add(const char* name, ParameterRole role, Shape shape, DType type) {
    declare(name, role, std::move(shape), nn::Init::normal(0.02)).type = type;
  }
};

void fill(std::span<float> values, std::mt19937& draw) {
  for (auto& value : values) value = static_cast<float>(draw() % 2001) / 1000.0F - 1;
}

bool equal(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A rank with everything beside the copy of the shards that rank `rank` of `ranks` has of it.
void check_copy(const std::string& name, int rank, int ranks, unsigned seed) {
  std::mt19937 draw(seed);
  ModelOfSomeSize model(draw);
  const auto optimizer = optim::made(name);
  OptimizationSetup setup;
  setup.optimizer = optim::made(name);
  setup.expert_bias_rate = 0.125;
  setup.groups.no_weight_decay_params = {"gain"};
  SharedState all(model.parameters(), optimizer.get());
  const StateLayout owner(model.parameters(), optimizer.get(),
                          {.rank = rank, .ranks = ranks, .distributed_optimizer = true, .bucket_elements = 500});
  auto parameters = read_outline(write_outline(owner));
  std::vector<nn::Parameter*> pointers;
  for (auto& parameter : parameters) pointers.push_back(&parameter);
  SharedState copy(pointers, optimizer.get());
  const auto elements = copy.shard_elements(), gradients = copy.shard_gradients();
  const auto tensors = 1 + owner.state_tensors().size();
  ASSERT_EQ(elements.size(), owner.shards().size() * tensors);
  ASSERT_EQ(gradients.size(), owner.shards().size());

  const auto of_all = [&](std::size_t shard, std::size_t tensor) {
    const auto& range = owner.shards()[shard].elements;
    const auto whole = all.layout().parameters().elements();
    const auto first = static_cast<std::size_t>(range.first), count = static_cast<std::size_t>(range.count);
    if (tensor == 0) return all.weights().subspan(first, count);
    std::span<float> found;
    for (const auto& placed : all.layout().shards()) {
      if (placed.elements.first > range.first ||
          placed.elements.first + placed.elements.count < range.first + range.count)
        continue;
      const auto state = all.shard_elements();
      const auto index = static_cast<std::size_t>(&placed - all.layout().shards().data());
      found = state[index * tensors + tensor].subspan(first - static_cast<std::size_t>(placed.elements.first), count);
    }
    must(whole >= range.first + range.count && found.size() == count, "a shard is within one parameter");
    return found;
  };
  fill(all.weights(), draw);
  for (std::size_t i = 0; i < owner.shards().size(); ++i)
    for (std::size_t k = 0; k < tensors; ++k) {
      ASSERT_EQ(elements[i * tensors + k].size(), of_all(i, k).size());
      std::ranges::copy(of_all(i, k), elements[i * tensors + k].begin());
    }

  kernels::Threads threads(2);
  UpdateScalars own(setup, std::vector<const nn::Parameter*>(pointers.begin(), pointers.end()));
  std::vector<const nn::Parameter*> of_model;
  for (const auto& range : all.layout().parameters().ranges()) of_model.push_back(range.parameter);
  UpdateScalars whole(setup, of_model);
  for (std::int64_t step = 1; step < 5; ++step) {
    fill(all.gradients(), draw);
    for (std::size_t i = 0; i < owner.shards().size(); ++i) {
      const auto& range = owner.shards()[i].elements;
      std::ranges::copy(
          all.gradients().subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count)),
          gradients[i].begin());
    }
    StepOutcome outcome;
    outcome.grad_norm = 3;
    const UpdateRates rates{step, 0.01, 0.02, 0.1};
    all.update(threads, whole.at(rates, outcome), whole.group_of());
    copy.update(threads, own.at(rates, outcome), own.group_of());
    for (std::size_t i = 0; i < owner.shards().size(); ++i)
      for (std::size_t k = 0; k < tensors; ++k)
        ASSERT_TRUE(equal(elements[i * tensors + k], of_all(i, k))) << "step " << step << ", shard " << i << ", " << k;
  }
}

TEST(StateCopies, GetTheSameBitsFromTheSameUpdate) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  for (unsigned i = 0; i < 10; ++i)
    for (const char* name : {"adamw", "sgd"})
      for (const int ranks : {2, 3}) check_copy(name, static_cast<int>(i) % ranks, ranks, seed + i);
  check_copy("muon", 0, 1, seed);
}

TEST(StateCopies, AnOutlineSaysWhatAnUpdateHasToKnow) {
  std::mt19937 draw(1);
  ModelOfSomeSize model(draw);
  const auto optimizer = optim::made("adamw");
  const StateLayout whole(model.parameters(), optimizer.get());
  const auto read = read_outline(write_outline(whole));
  ASSERT_EQ(read.size(), 4U);
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, model.parameters()[i]->name);
    EXPECT_EQ(read[i].role, model.parameters()[i]->role);
    EXPECT_EQ(read[i].shape(), model.parameters()[i]->shape());
  }
  EXPECT_THROW(read_outline("1 2 30\n"), BugError);
}

}  // namespace
}  // namespace tessera::training
