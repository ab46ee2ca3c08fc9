// Checkpoints of Megatron-LM's --ckpt-format torch_dist: what the ranks of any layout write is each element once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/dcp_writer.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/megatron/megatron_dist_checkpoint.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "framework/interop/megatron/megatron_dist_names.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/yaml.h"
#include "tests/interop/megatron/floats.h"
#include "tests/interop/megatron/random_layouts.h"
#include "tests/interop/megatron/save.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::int64_t>;

struct WholeTensor {
  DType type = DType::float32;
  Shape size;
  Numbers before;  ///< shape before it was flattened; empty: it was not
  std::vector<float> values;
  std::vector<int> times;  ///< how often each element is stored
};

/// Everything that the index names, whole, read with no more than torch's archives.
struct ReadBack {
  explicit ReadBack(const fs::path& folder) {
    const MappedFile file(folder / ".metadata");
    const torch::Pickle pickle(file.bytes(), ".metadata", {"torch.distributed.checkpoint.", "torch.serialization "});
    const auto& root = *pickle.root().items.at(2);
    const auto& about = root.find("state_dict_metadata")->items;
    for (std::size_t i = 0; i < about.size(); i += 2) describe(about[i]->text, *about[i + 1], *root.find("mcore_data"));
    const auto& stored = root.find("storage_data")->items;
    for (std::size_t i = 0; i < stored.size(); i += 2)
      take(folder, *stored[i]->items.at(2), *stored[i + 1]->items.at(2));
  }
  std::map<std::string, WholeTensor> tensors;
  std::set<std::string> objects;

 private:
  static Numbers numbers(const torch::PickleNode& tuple) {
    Numbers out;
    for (const auto* item : tuple.items) out.push_back(item->integer);
    return out;
  }
  static Numbers size(const torch::PickleNode& node) { return numbers(*node.items.at(1)->items.at(0)); }

  void describe(const std::string& key, const torch::PickleNode& node, const torch::PickleNode& more) {
    if (node.items.size() < 3) return static_cast<void>(objects.insert(key));
    auto& tensor = tensors[key];
    tensor.size = Shape(size(*node.items[2]->find("size")));
    tensor.values.resize(static_cast<std::size_t>(tensor.size.elements()));
    tensor.times.resize(tensor.values.size());
    const auto& properties = *node.items[2]->find("properties")->items.at(2);
    ASSERT_EQ(properties.items.size(), 5U);  // six are refused by older versions of PyTorch
    tensor.type = properties.items[0]->text == "torch bfloat16" ? DType::bfloat16 : DType::float32;
    if (const auto* before = more.find(key)->find("nd_reformulated_orig_global_shape"))
      tensor.before = numbers(*before);
  }

  void take(const fs::path& folder, const torch::PickleNode& index, const torch::PickleNode& place) {
    const auto key = index.find("fqn")->text;
    const MappedFile file(folder / place.find("relative_path")->text);
    const auto bytes = file.bytes().subspan(static_cast<std::size_t>(place.find("offset")->integer),
                                            static_cast<std::size_t>(place.find("length")->integer));
    auto copy = File::create("item.pt");
    copy.write(bytes);
    copy.close();
    const torch::TorchFile item("item.pt");
    item.verify();
    if (objects.count(key) != 0) {
      ASSERT_EQ(item.root().kind, torch::PickleNode::Kind::list);
      ASSERT_TRUE(item.root().items.size() == 1 && item.root().items[0]->is_none());
      return;
    }
    auto& whole = tensors.at(key);
    const auto chunk = item.tensor(item.root(), key);
    ASSERT_EQ(chunk.dtype(), whole.type);
    const auto box = Box::of(size(*index.find("offset")), chunk.shape());
    ASSERT_EQ(intersection(box, Box::whole(whole.size)), box) << key;
    checkpoint::copy_box(box, chunk, box, Tensor(std::span(whole.values), whole.size), Box::whole(whole.size));
    std::vector<std::int32_t> ones(static_cast<std::size_t>(box.elements()), 1), times(whole.times.size());
    checkpoint::copy_box(box, Tensor(std::span(ones), chunk.shape()), box, Tensor(std::span(times), whole.size),
                         Box::whole(whole.size));
    for (std::size_t i = 0; i < times.size(); ++i) whole.times[i] += times[i];
  }
};

/// The elements of a flattened tensor in the order that they had before: its last axis is a block of those.
std::vector<float> unflattened(const WholeTensor& tensor) {
  if (tensor.before.empty()) return tensor.values;
  std::vector<float> out(tensor.values.size());
  const Shape before(tensor.before);
  Numbers extent;
  for (std::size_t dim = 0; dim < tensor.before.size(); ++dim) extent.push_back(tensor.before[dim] / tensor.size[dim]);
  const auto elements = Shape(extent).elements();
  EXPECT_EQ(tensor.size[tensor.before.size()], elements);
  Numbers at(extent.size(), 0);
  for (std::int64_t block = 0; block * elements < before.elements(); ++block) {
    auto rest = block;
    for (std::size_t dim = extent.size(); dim-- > 0; rest /= tensor.size[dim])
      at[dim] = rest % tensor.size[dim] * extent[dim];
    const Box box{at, extent};
    auto values =
        std::vector<float>(tensor.values.begin() + block * elements, tensor.values.begin() + (block + 1) * elements);
    checkpoint::copy_box(box, Tensor(std::span(values), Shape(extent)), box, Tensor(std::span(out), before),
                         Box::whole(before));
  }
  return out;
}

class MegatronDistSave : public InOwnFolder {
 protected:
  MegatronDistSave() : InOwnFolder(fs::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir()) {}
  options::Mappings mappings;
  options::Value table = mappings.table("weights/megatron.yaml");
  const megatron::MegatronDistFormat format;

  std::map<std::string, checkpoint::TensorRange> model(const DrawnModel& form) {
    std::map<std::string, checkpoint::TensorRange> all;
    for (const auto& rank : ranks_of(recipe_of(form), {}))
      for (const auto& part : rank.chunks[0])
        for (const std::string beginning : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
          if (!beginning.empty() && part.role == ParameterRole::expert_bias) continue;
          auto& values = memory_.emplace_back(static_cast<std::size_t>(part.global_shape.elements()));
          for (auto& value : values) value = static_cast<float>(++count_ % 16777213);
          all.emplace(
              beginning + part.name,
              checkpoint::whole(beginning + part.name, Tensor(std::span(values), part.global_shape), part.role));
        }
    return all;
  }

  /// The box of a tensor, in memory of its own.
  checkpoint::TensorRange cut(const checkpoint::TensorRange& whole, const Box& box) {
    auto& values = memory_.emplace_back(static_cast<std::size_t>(box.elements()));
    const Tensor into{std::span(values), Shape(box.extent)};
    checkpoint::copy_box(box, whole.tensor, Box::whole(whole.global_shape), into, box);
    return {.name = whole.name,
            .global_shape = whole.global_shape,
            .offsets = box.begin,
            .tensor = into,
            .role = whole.role};
  }

  /// What data-parallel rank 0 and 1 have of a box whose elements are divided at element `at`.
  static std::array<std::vector<Box>, 2> divided(const Box& box, std::int64_t at) {
    std::array<std::vector<Box>, 2> out;
    const auto width = box.elements_of_row(), row = at / width, rest = at % width;
    const auto rows = [&](std::int64_t first, std::int64_t count, std::size_t rank) {
      auto part = box;
      part.begin[0] += first, part.extent[0] = count;
      if (count > 0) out.at(rank).push_back(part);
    };
    rows(0, row, 0);
    if (rest > 0) {
      auto left = box, right = box;
      left.begin[0] = right.begin[0] = box.begin[0] + row;
      left.extent[0] = right.extent[0] = 1;
      left.extent[1] = rest;
      right.begin[1] += rest, right.extent[1] -= rest;
      out[0].push_back(left);
      out[1].push_back(right);
    }
    const auto next = row + (rest > 0 ? 1 : 0);
    rows(next, box.extent[0] - next, 1);
    return out;
  }

  /// Saves "run/iter_0000007" by all ranks of the layout, times two data-parallel ranks, between which the elements of
  /// each box of optimizer state are divided at a place that `draw` chooses.
  fs::path save(const checkpoint::ForeignSave& save, const std::map<std::string, checkpoint::TensorRange>& all,
                std::mt19937& draw) {
    const auto ranks = ranks_of(save.recipe, save.layout);
    const auto owned = owned_by_ranks(save.recipe, save.layout);
    format.begin(save);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      std::array<std::vector<checkpoint::TensorRange>, 2> ranges;
      for (const auto& part : owned[i])
        for (const auto& box : part.boxes) {
          ranges[0].push_back(cut(all.at(part.name), box));
          const auto at = std::uniform_int_distribution<std::int64_t>(0, box.elements())(draw);
          const auto shards = divided(box, at);
          for (const std::string slot : {"exp_avg", "exp_avg_sq"})
            for (std::size_t rank = 0; rank < 2; ++rank)
              for (const auto& shard : shards.at(rank))
                if (const auto state = all.find(text("optimizer.", slot, ".", part.name)); state != all.end())
                  ranges.at(rank).push_back(cut(state->second, shard));
        }
      for (std::size_t rank = 0; rank < 2; ++rank)
        format.write_owned(save, ranks[i], static_cast<std::int64_t>(2 * i + rank),
                           checkpoint::LiveState(std::move(ranges.at(rank))));
    }
    return format.finish(save);
  }

  /// Empty, or what the folder has not as it was given.
  std::string differences(const fs::path& folder, const checkpoint::ForeignSave& save,
                          const std::map<std::string, checkpoint::TensorRange>& all) {
    const ReadBack read(folder);
    const megatron::DistKeys keys(megatron::megatron_arguments(save), table);
    std::string out;
    std::set<std::string> expected;
    for (const auto& [key, tensor] : read.tensors)
      for (const auto times : tensor.times)
        if (times != 1) return text(key, " has an element ", times, " times");
    const bool distributed = save.layout.distributed_optimizer, later = save.version >= 15;
    for (const auto& one : all) {
      const auto& name = one.first;
      const auto& range = one.second;
      const auto weight = checkpoint::weight_of(name);
      const bool buffer = range.role == ParameterRole::expert_bias, expert = range.role == ParameterRole::expert;
      const auto state = save.layout.expert > 1 && !later ? text("chained_", expert ? 1 : 0, ".optimizer.state.")
                                                          : std::string("optimizer.state.");
      const auto compare = [&](const std::string& prefix, DType type, bool flat) {
        const auto key = keys.of(weight);
        expected.insert(prefix + key.key);
        const auto found = read.tensors.find(prefix + key.key);
        if (found == read.tensors.end()) return static_cast<void>(out += text(prefix, key.key, " is missing\n"));
        const auto& tensor = found->second;
        if (tensor.type != type) out += text(prefix, key.key, " is of type ", name_of(tensor.type), "\n");
        if (tensor.before.empty() == flat) out += text(prefix, key.key, " is of ", tensor.size, "\n");
        const auto values = unflattened(tensor);
        std::int64_t first = 0;
        for (std::size_t i = 0; i < key.axes.size(); ++i) first = first * key.axes[i] + key.index[i];
        first *= range.global_shape.elements();
        std::vector<float> given(range.tensor.floats().begin(), range.tensor.floats().end());
        if (type == DType::bfloat16) {
          std::vector<std::byte> narrow(given.size() * 2);
          const Tensor rounded{std::span(narrow), type, range.global_shape};
          checkpoint::copy_converted(range.tensor, rounded);
          checkpoint::copy_converted(rounded, Tensor(std::span(given), range.global_shape));
        }
        if (!std::equal(given.begin(), given.end(), values.begin() + first))
          out += text(prefix, key.key, " has other values for ", name, "\n");
      };
      if (checkpoint::is_optimizer_state(name)) {
        const auto slot = name.substr(10, name.size() - weight.size() - 11);
        compare(state + slot + ".", DType::float32, distributed && !later);
        continue;
      }
      compare("", buffer ? DType::float32 : save.type, false);
      if (!buffer && (distributed || save.type != DType::float32))
        compare(state + (later && distributed ? "param." : "fp32_param."), DType::float32, distributed && !later);
    }
    for (const auto& tensor : read.tensors)
      if (expected.count(tensor.first) == 0) out += text(tensor.first, " is there too\n");
    return out;
  }

 private:
  std::deque<std::vector<float>> memory_;
  std::int64_t count_ = 0;
};

TEST_F(MegatronDistSave, RandomLayoutsOfRandomModelsStoreEachElementOnce) {
  Draw draw;
  for (int i = 0; i < 20 / part_of_inputs; ++i) {
    const auto form = draw.model(draw.one_of(std::vector{0, 4, 8}));
    const auto layout = draw.layout(form);
    auto about = megatron_save("run", {.iteration = 7, .updates = 6}, recipe_of(form),
                               draw.chance() ? DType::bfloat16 : DType::float32, mappings, layout);
    about.version = draw.one_of(std::vector{0, 12, 17});
    const auto what =
        text(draw.about(), ", case ", i, ": tp ", layout.tensor, " ep ", layout.expert, " etp ", layout.expert_tensor,
             " stages ", layout.stages(), " distributed ", layout.distributed_optimizer, " version ", about.version,
             "\n", options::write_yaml(recipe_of(form)));
    const auto all = model(form);
    const auto folder = save(about, all, draw.generator());
    ASSERT_EQ(differences(folder, about, all), "") << what;
    ASSERT_FALSE(fs::exists("run/iter_0000007_tmp")) << what;
    const megatron::MegatronDistCheckpoint source(folder, mappings);
    for (const auto& [name, range] : all) {
      ASSERT_TRUE(source.has(name)) << name << " " << what;
      const auto values = range.tensor.floats();
      ASSERT_EQ(floats(source, name), std::vector<float>(values.begin(), values.end())) << name << " " << what;
    }
    ASSERT_EQ(source.progress()->updates, 6) << what;
  }
}

TEST_F(MegatronDistSave, KeysAreThoseOfMegatron) {
  const auto key = [&](const Json& arguments, const std::string& name) {
    const auto found = megatron::DistKeys(arguments, table).of(name);
    std::string out = found.key;
    for (std::size_t i = 0; i < found.axes.size(); ++i) out += text(" ", found.index[i], "/", found.axes[i]);
    return out;
  };
  const Json alike{{"num_layers", 3}, {"num_experts", 4}, {"moe_layer_freq", 1}};
  const Json numbered{{"num_layers", 3}, {"num_experts", 4}, {"moe_layer_freq", {1, 1, 1}}};
  const Json latent{{"num_layers", 3}, {"multi_latent_attention", true}};
  const std::string layer = "decoder.layers.2.";
  EXPECT_EQ(key(alike, "embedding.word_embeddings.weight"), "embedding.word_embeddings.weight");
  EXPECT_EQ(key(alike, layer + "self_attention.linear_qkv.bias"), "decoder.layers.self_attention.linear_qkv.bias 2/3");
  EXPECT_EQ(key(alike, layer + "input_layernorm.weight"),
            "decoder.layers.self_attention.linear_qkv.layer_norm_weight 2/3");
  EXPECT_EQ(key(alike, layer + "pre_mlp_layernorm.bias"), "decoder.layers.mlp.linear_fc1.layer_norm_bias 2/3");
  EXPECT_EQ(key(alike, layer + "mlp.experts.local_experts.1.linear_fc2.weight"),
            "decoder.layers.mlp.experts.experts.linear_fc2.weight 2/3 1/4");
  EXPECT_EQ(key(numbered, layer + "mlp.experts.local_experts.1.linear_fc2.weight"),
            "decoder.layers.2.mlp.experts.experts.linear_fc2.weight 1/4");
  EXPECT_EQ(key(numbered, layer + "mlp.router.weight"), "decoder.layers.2.mlp.router.weight");
  EXPECT_EQ(key(latent, layer + "input_layernorm.weight"), "decoder.layers.input_layernorm.weight 2/3");
  EXPECT_EQ(key(alike, "mtp.layers.0.transformer_layer.input_layernorm.weight"),
            "mtp.layers.0.transformer_layer.self_attention.linear_qkv.layer_norm_weight");
  const megatron::DistKeys keys(alike, table);
  EXPECT_EQ(keys.extra_state(layer + "mlp.linear_fc1.weight"), "decoder.layers.mlp.linear_fc1._extra_state/shard_2_3");
  EXPECT_EQ(keys.extra_state(layer + "mlp.experts.local_experts.1.linear_fc2.weight"),
            "decoder.layers.mlp.experts.experts.linear_fc2._extra_state/shard_2.1_3.4");
  EXPECT_EQ(keys.extra_state(layer + "mlp.linear_fc1.bias"), "");
  EXPECT_EQ(keys.extra_state(layer + "mlp.router.weight"), "");
  EXPECT_EQ(keys.extra_state("output_layer.weight"), "");
}

TEST_F(MegatronDistSave, WeightsWithALearningRateOfTheirOwnAreInAGroupOfTheirOwn) {
  std::mt19937 draw(1);
  const DrawnModel form;
  const auto groups_with = [&](const char* rate) {
    auto recipe = recipe_of(form);
    if (rate != nullptr) recipe.set("optimizer_config.decoupled_lr", options::Value::of(rate, {}));
    const auto about = megatron_save("run", {.iteration = 7, .updates = 6}, recipe, DType::float32, mappings);
    const torch::TorchFile common(save(about, model(form), draw) / "common.pt");
    std::vector<std::pair<bool, double>> all;
    for (const auto* group : common.root().find("optimizer")->find("param_groups")->items)
      all.emplace_back(group->find("is_decoupled_lr")->flag, group->find("wd_mult")->real);
    return all;
  };
  using Groups = std::vector<std::pair<bool, double>>;
  EXPECT_EQ(groups_with(nullptr), (Groups{{false, 1}, {false, 0}}));
  EXPECT_EQ(groups_with("0.25"), (Groups{{true, 1}, {false, 1}, {false, 0}}));
}

TEST_F(MegatronDistSave, AnUnfinishedSaveLeavesTheLastCheckpoint) {
  std::mt19937 draw(1);
  const DrawnModel form;
  const auto all = model(form);
  const auto about = megatron_save("run", {.iteration = 7, .updates = 6}, recipe_of(form), DType::float32, mappings);
  const auto folder = save(about, all, draw);
  const auto before = read_file(folder / ".metadata");
  format.begin(about);  // again, and killed after its data
  const auto owned = owned_by_ranks(about.recipe, about.layout);
  std::vector<checkpoint::TensorRange> ranges;
  for (const auto& part : owned[0])
    for (const auto& box : part.boxes) ranges.push_back(cut(all.at(part.name), box));
  format.write_owned(about, ranks_of(about.recipe, about.layout)[0], 0, checkpoint::LiveState(ranges));
  EXPECT_TRUE(fs::exists("run/iter_0000007_tmp/__0_0.distcp"));
  EXPECT_FALSE(fs::exists("run/iter_0000007_tmp/metadata.json"));
  EXPECT_EQ(read_file(folder / ".metadata"), before);
  EXPECT_EQ(differences(folder, about, all), "");
  format.begin(about);
  EXPECT_FALSE(fs::exists("run/iter_0000007_tmp/__0_0.distcp"));
  format.abandon(about);
  EXPECT_FALSE(fs::exists("run/iter_0000007_tmp"));
  EXPECT_EQ(read_file("run/latest_checkpointed_iteration.txt"), "7");
}

TEST_F(MegatronDistSave, ChunksThatLackOrRepeatElementsAreNotSaved) {
  std::vector<float> values(6, 1);
  const auto item = [&](std::int64_t offset, std::int64_t rows) {
    return megatron::DcpItem{.key = "w",
                             .size = {6},
                             .offsets = {offset},
                             .extents = {rows},
                             .elements = [&values, rows](const torch::ArchiveWriter::Sink& sink) {
                               sink(std::as_bytes(std::span(values).first(static_cast<std::size_t>(rows))));
                             }};
  };
  const auto story = [&](const std::vector<megatron::DcpItem>& items) {
    fs::remove_all("d");
    fs::create_directory("d");
    return story_of([&] {
      megatron::write_dcp_items("d", 3, items, Json::object());
      megatron::DcpParts("d").write_metadata();
    });
  };
  EXPECT_EQ(story({item(0, 4), item(4, 2)}), "no error");
  EXPECT_TRUE(fs::exists("d/__3_0.distcp"));
  EXPECT_TRUE(says(story({item(0, 4)}), "the chunks of 'w' have 4 elements; it has 6")) << story({item(0, 4)});
  EXPECT_TRUE(says(story({item(0, 3), item(0, 3)}), "two chunks of 'w' begin at the same element"));
  EXPECT_FALSE(fs::exists("d/.metadata"));
}

TEST_F(MegatronDistSave, AnArchiveHasTheSizeThatWasForetold) {
  std::mt19937 draw(std::random_device{}());
  for (int i = 0; i < 50; ++i) {
    const auto elements = std::uniform_int_distribution<std::int64_t>(0, 3000)(draw);
    std::vector<float> values(static_cast<std::size_t>(elements), 2);
    torch::TorchFileWriter archive;
    archive.tensor(Tensor(std::span(values), Shape{elements}));
    auto file = File::create("a.pt");
    EXPECT_EQ(archive.append_to(file), archive.bytes());
    EXPECT_EQ(file.size(), archive.bytes());
    torch::TorchFile("a.pt").verify();
  }
}

}  // namespace
}  // namespace tessera
