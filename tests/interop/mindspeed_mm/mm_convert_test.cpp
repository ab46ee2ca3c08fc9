#include "framework/interop/mindspeed_mm/mm_convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <map>
#include <random>
#include <span>

#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/mindspeed_mm/mm_checkpoint.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/interop/torch/zip.h"
#include "framework/options/yaml.h"
#include "tests/interop/hugging_face/tiny_qwen2_vl.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using mindspeed_mm::MmCommand;
using Numbers = std::vector<std::int64_t>;

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return all;
}

/// A division over ranks, as the options of mm-convert give it.
struct Cut {
  std::string tower, text_model;
  std::int64_t ranks = 1;
  std::string options(const std::string& map) const {
    return text("  ", map, ": {vit_pp_layers: ", tower, ", llm_pp_layers: ", text_model, ", tp_size: ", ranks, "}\n");
  }
};

std::string words_of(const std::vector<Numbers>& chunks) { return words(mindspeed_mm::StageLayers{chunks}); }

class MmConvert : public InOwnFolder {
 protected:
  void run(MmCommand command, const std::string& options, const std::string& release = "2.1.0") {
    lines_ = mindspeed_mm::mm_convert(command, options::parse_yaml("cfg:\n" + options, "mm.yml"), release, mappings_);
  }
  void to_mm(const std::string& hf, const std::string& mm, const Cut& cut, const std::string& release = "2.1.0") {
    run(MmCommand::hf_to_mm, text("  mm_dir: ", mm, "\n  hf_config: {hf_dir: ", hf, "}\n", cut.options(parallel)),
        release);
  }
  void to_hf(const std::string& mm, const std::string& out, const Cut& cut, const std::string& like = "hf",
             const std::string& release = "2.1.0") {
    run(MmCommand::mm_to_hf,
        text("  save_hf_dir: ", out, "\n  mm_dir: ", mm, "\n  hf_config: {hf_dir: ", like, "}\n",
             cut.options(parallel)),
        release);
  }
  void resplit(const std::string& from, const std::string& to, const Cut& a, const Cut& b,
               const std::string& more = "") {
    run(MmCommand::resplit, text("  source_dir: ", from, "\n  target_dir: ", to, "\n",
                                 a.options("source_parallel_config"), b.options("target_parallel_config"), more));
  }
  /// A tensor of a rank.
  static std::vector<float> values(const std::string& mm, const std::string& rank, const std::string& name,
                                   Shape* shape = nullptr, const std::string& chunk = "model") {
    const torch::TorchFile file(fs::path(mm) / "release" / rank / "model_optim_rng.pt");
    const auto* node = file.root().find(chunk)->find(name);
    if (node == nullptr) return {};
    const auto tensor = file.tensor(*node, name);
    if (shape != nullptr) *shape = tensor.shape();
    const auto* data = reinterpret_cast<const float*>(tensor.raw().data());
    return {data, data + tensor.elements()};
  }
  std::vector<float> of_hf(const std::string& name, const std::string& folder = "hf") {
    const checkpoint::SafetensorsReader files(folder);
    const auto tensor = files.tensor(name);
    std::vector<float> all(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(all.data(), tensor.raw().data(), tensor.bytes());
    return all;
  }
  static std::vector<float> rows(const std::vector<float>& all, std::size_t width, std::size_t first,
                                 std::size_t count) {
    return {all.begin() + static_cast<std::ptrdiff_t>(first * width),
            all.begin() + static_cast<std::ptrdiff_t>((first + count) * width)};
  }

  const std::string parallel = "parallel_config";
  options::Mappings mappings_;
  std::vector<std::string> lines_;
};

/// A random layout of the model: chunks x stages, the text model not before the last layer of the tower.
Cut random_cut(const TinyQwen2Vl& model, std::mt19937& random, bool chunks_allowed) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto chunks = chunks_allowed ? draw(1, 2) : 1, stages = draw(1, 4), places = chunks * stages;
  const auto middle =
      draw(0, places - 1);  // the last place of the tower is not after it, the first of the text not before
  Numbers tower(static_cast<std::size_t>(places), 0), text_model = tower;
  for (std::int64_t i = 0; i < model.tower_layers; ++i) ++tower[static_cast<std::size_t>(draw(0, middle))];
  for (std::int64_t i = 0; i < model.text_layers; ++i) ++text_model[static_cast<std::size_t>(draw(middle, places - 1))];
  const auto in_chunks = [&](const Numbers& all) {
    std::vector<Numbers> out;
    for (auto at = all.begin(); at != all.end(); at += stages) out.emplace_back(at, at + stages);
    return words_of(out);
  };
  return {in_chunks(tower), in_chunks(text_model), draw(1, 2)};
}

TEST_F(MmConvert, EveryLayoutComesBackByteForByteAndIsResplitToWhatItWouldHaveBeen) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int draw = 0; draw < 6; ++draw) {
    TinyQwen2Vl model;
    model.tied = draw % 2 == 1;
    model.write("hf");
    const auto a = random_cut(model, random, true), b = random_cut(model, random, true);
    SCOPED_TRACE(text("seed ", seed, ", draw ", draw, ":\n", a.options("a"), b.options("b")));
    to_mm("hf", "a", a);
    to_hf("a", "back", a);
    EXPECT_EQ(files_in("back"), files_in("hf"));
    to_mm("hf", "b", b);
    resplit("a", "resplit", a, b);
    EXPECT_EQ(files_in("resplit"), files_in("b"));
    for (const char* folder : {"hf", "a", "b", "back", "resplit"}) fs::remove_all(folder);
  }
}

TEST_F(MmConvert, RanksHaveWholeGroupsOfHeadsHalvesOfTheGateAndColumns) {
  const TinyQwen2Vl model;  // 4 query heads in 2 groups of 4 channels, width 16
  model.write("hf");
  to_mm("hf", "mm", {"[[3]]", "[[4]]", 2});
  const std::string layer = "text_decoder.decoder.layers.1.";
  const auto q = of_hf("model.layers.1.self_attn.q_proj.weight"), k = of_hf("model.layers.1.self_attn.k_proj.weight"),
             v = of_hf("model.layers.1.self_attn.v_proj.weight");
  Shape shape;
  const auto qkv = values("mm", "mp_rank_01", layer + "self_attention.linear_qkv.weight", &shape);
  EXPECT_EQ(shape, (Shape{16, 16}));
  EXPECT_EQ(rows(qkv, 16, 0, 8), rows(q, 16, 8, 8));
  EXPECT_EQ(rows(qkv, 16, 8, 4), rows(k, 16, 4, 4));
  EXPECT_EQ(rows(qkv, 16, 12, 4), rows(v, 16, 4, 4));
  const auto fc1 = values("mm", "mp_rank_01", layer + "mlp.linear_fc1.weight");
  EXPECT_EQ(rows(fc1, 16, 0, 12), rows(of_hf("model.layers.1.mlp.gate_proj.weight"), 16, 12, 12));
  EXPECT_EQ(rows(fc1, 16, 12, 12), rows(of_hf("model.layers.1.mlp.up_proj.weight"), 16, 12, 12));
  const auto fc2 = values("mm", "mp_rank_01", layer + "mlp.linear_fc2.weight", &shape);
  EXPECT_EQ(shape, (Shape{16, 12}));
  const auto down = of_hf("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(rows(fc2, 12, 1, 1), std::vector<float>(down.begin() + 24 + 12, down.begin() + 48));
  // The tower: [all queries; all keys; all values] to a head at a time; biases of what is divided by columns are whole.
  const std::string block = "image_encoder.encoder.blocks.layers.2.";
  const auto tower = of_hf("visual.blocks.2.attn.qkv.weight");
  const auto head = values("mm", "mp_rank_01", block + "self_attention.linear_qkv.weight");
  for (std::size_t part = 0; part < 3; ++part)
    EXPECT_EQ(rows(head, 16, 8 * part, 8), rows(tower, 16, 16 * part + 8, 8)) << part;
  EXPECT_EQ(values("mm", "mp_rank_01", block + "mlp.linear_fc2.bias"), of_hf("visual.blocks.2.mlp.fc2.bias"));
  EXPECT_EQ(values("mm", "mp_rank_00", "image_encoder.encoder.patch_embed.proj.weight", &shape),
            of_hf("visual.patch_embed.proj.weight"));
  EXPECT_EQ(shape, (Shape{16, 3, 2, 2, 2}));
}

TEST_F(MmConvert, StagesNumberTheirOwnLayersAndEndsAreOnTheStagesThatHaveThem) {
  const TinyQwen2Vl model;
  model.write("hf");
  to_mm("hf", "mm", {"[[2, 1, 0, 0]]", "[[0, 1, 0, 3]]", 1});
  const auto norm = [&](int layer) { return of_hf(text("model.layers.", layer, ".input_layernorm.weight")); };
  const auto there = [&](const char* rank, const std::string& name) { return !values("mm", rank, name).empty(); };
  EXPECT_EQ(values("mm", "mp_rank_00_003", "text_decoder.decoder.layers.0.input_layernorm.weight"), norm(1));
  EXPECT_EQ(values("mm", "mp_rank_00_003", "text_decoder.decoder.layers.2.input_layernorm.weight"), norm(3));
  EXPECT_TRUE(there("mp_rank_00_000", "image_encoder.encoder.patch_embed.proj.weight"));
  EXPECT_TRUE(there("mp_rank_00_001", "image_encoder.projector.layernorm.weight"));
  EXPECT_TRUE(there("mp_rank_00_001", "text_decoder.embedding.word_embeddings.weight"));
  EXPECT_TRUE(there("mp_rank_00_003", "text_decoder.decoder.final_layernorm.weight"));
  EXPECT_TRUE(there("mp_rank_00_003", "text_decoder.output_layer.weight"));
  EXPECT_EQ(read_file("mm/latest_checkpointed_iteration.txt"), "release");
  // Chunk 0 of all stages comes before chunk 1.
  to_mm("hf", "chunks", {"[[3, 0], [0, 0]]", "[[1, 0], [1, 2]]", 1});
  EXPECT_EQ(
      values("chunks", "mp_rank_00_000", "text_decoder.decoder.layers.0.input_layernorm.weight", nullptr, "model1"),
      norm(1));
  EXPECT_TRUE(says(joined(lines_, "\n"), "[chunk][stage]"));
}

TEST_F(MmConvert, SomeReleasesLeaveTheProjectionsOfTheTowerConcatenated) {
  const TinyQwen2Vl model;
  model.write("hf");
  const Cut cut{"[[3]]", "[[4]]", 2};
  const std::string name = "image_encoder.encoder.blocks.layers.0.self_attention.linear_qkv.bias";
  for (const char* release : {"2.2.0", "2.3.0"}) {
    to_mm("hf", release, cut, release);
    auto both = values(release, "mp_rank_00", name);
    const auto second = values(release, "mp_rank_01", name);
    both.insert(both.end(), second.begin(), second.end());
    EXPECT_EQ(both, of_hf("visual.blocks.0.attn.qkv.bias"));
    to_hf(release, text("back_", release), cut, "hf", release);
    EXPECT_TRUE(says(joined(lines_, "\n"), "is read as a folder of MindSpeed-MM 2.2.0, 2.3.0; those of 2.1.0, 26.0.0"));
    EXPECT_EQ(files_in(text("back_", release)), files_in("hf"));
  }
  to_mm("hf", "now", cut, "26.0.0");
  to_mm("hf", "old", cut);
  EXPECT_EQ(files_in("now"), files_in("old"));
  EXPECT_NE(files_in("now"), files_in("2.2.0"));
  run(MmCommand::mm_to_hf,
      text("  save_hf_dir: asked\n  mm_dir: 2.2.0\n  tower_qkv: concatenated\n  hf_config: {hf_dir: hf}\n",
           cut.options(parallel)));
  EXPECT_EQ(files_in("asked"), files_in("hf"));
  EXPECT_TRUE(says(story_of([&] { to_mm("hf", "new", cut, "27.0.0"); }), "27.0.0 is not known"));
}

TEST_F(MmConvert, ATiedOutputLayerIsACopyOnTheLastOfSeveralStages) {
  TinyQwen2Vl model;
  model.tied = true;
  model.write("hf");
  const Cut one{"[[3]]", "[[4]]", 1}, two{"[[3, 0]]", "[[2, 2]]", 1};
  const std::string copy = "text_decoder.output_layer.weight";
  to_mm("hf", "one", one);
  to_mm("hf", "two", two);
  EXPECT_TRUE(values("one", "mp_rank_00", copy).empty());
  EXPECT_EQ(values("two", "mp_rank_00_001", copy), of_hf("model.embed_tokens.weight"));
  // As if the model were not tied.
  EXPECT_TRUE(
      says(story_of([&] { resplit("one", "x", one, two, "  tie_word_embeddings: false\n"); }), "has no text_decoder"));
  resplit("two", "untied", two, one, "  tie_word_embeddings: false\n");
  EXPECT_EQ(values("untied", "mp_rank_00", copy), of_hf("model.embed_tokens.weight"));
  TinyQwen2Vl().write("untied_hf");
  to_mm("untied_hf", "untied_two", two);
  EXPECT_TRUE(says(story_of([&] { to_hf("untied_two", "x", two); }), "differs from"));
  EXPECT_TRUE(says(story_of([&] { to_hf("one", "x", one, "untied_hf"); }), "has no text_decoder.output_layer"));
}

/// Nothing in a folder of several stages tells it from a tied one.
TEST_F(MmConvert, AnOutputLayerOfItsOwnThatEqualsTheEmbeddingIsKeptIfAnythingTells) {
  TinyQwen2Vl model;
  model.equal_ends = true;
  model.write("hf");
  const Cut one{"[[3]]", "[[4]]", 1}, two{"[[3, 0]]", "[[2, 2]]", 1};
  const std::string head = "text_decoder.output_layer.weight";
  to_mm("hf", "one", one);
  to_mm("hf", "two", two);
  resplit("two", "of_config", two, one, "  hf_config: {hf_dir: hf}\n");
  EXPECT_EQ(files_in("of_config"), files_in("one"));
  EXPECT_EQ(lines_.size(), 1U);
  resplit("two", "of_option", two, one, "  tie_word_embeddings: false\n");
  EXPECT_EQ(files_in("of_option"), files_in("one"));
  resplit("two", "taken_as_tied", two, one);
  EXPECT_TRUE(values("taken_as_tied", "mp_rank_00", head).empty());
  EXPECT_TRUE(says(lines_.back(), "the output layer of two equals the embedding")) << lines_.back();
  resplit("one", "of_one_stage", one, two);
  EXPECT_EQ(files_in("of_one_stage"), files_in("two"));
  mindspeed_mm::MmCheckpoint checkpoint(*mindspeed_mm::MmFormat().find("two"), mappings_);
  EXPECT_FALSE(checkpoint.has("output_layer.weight"));
  checkpoint.describe_by("hf", mappings_);
  EXPECT_TRUE(checkpoint.has("output_layer.weight"));
}

TEST_F(MmConvert, TheTowerAloneIsWrittenIfAskedFor) {
  TinyQwen2Vl().write("hf");
  run(MmCommand::hf_to_mm, text("  mm_dir: mm\n  save_vit_only: true\n  hf_config: {hf_dir: hf}\n",
                                Cut{"[[3]]", "[[4]]", 1}.options(parallel)));
  const torch::TorchFile file("mm/release/mp_rank_00/model_optim_rng.pt");
  const auto& items = file.root().find("model")->items;
  EXPECT_EQ(items.size(), 2U * (3U * 12U + 7U));
  for (std::size_t i = 0; i < items.size(); i += 2) EXPECT_TRUE(items[i]->text.starts_with("image_encoder.")) << i;
}

TEST_F(MmConvert, WhatDoesNotFitTheModelIsRefusedAllAtOnceAndNothingIsWritten) {
  TinyQwen2Vl().write("hf");
  const auto story = [&](const Cut& cut) { return story_of([&] { to_mm("hf", "mm", cut); }); };
  const auto both = story({"[[4]]", "[[3]]", 1});
  EXPECT_TRUE(says(both, "mm.yml:4: parallel_config.vit_pp_layers is [[4]], 4 layers; the model has 3")) << both;
  EXPECT_TRUE(says(both, "parallel_config.llm_pp_layers is [[3]], 3 layers; the model has 4")) << both;
  const auto early = story({"[[2, 1]]", "[[1, 3]]", 1});
  EXPECT_TRUE(says(early,
                   "its first layer is on stage 0, before the last layer of parallel_config.vit_pp_layers on "
                   "stage 1"))
      << early;
  EXPECT_TRUE(says(story({"[3]", "[2, 2]", 1}), "has 1 x 2 chunks x stages, parallel_config.vit_pp_layers has 1 x 1"));
  EXPECT_TRUE(says(story({"[[3, 0], [0]]", "[[2, 2], [0]]", 1}), "different numbers of stages"));
  EXPECT_TRUE(says(story({"[0]", "[4]", 1}), "the tower has no layers"));
  EXPECT_TRUE(says(story({"[3]", "[-4]", 1}), "llm_pp_layers"));
  EXPECT_TRUE(says(story({"[3]", "[4]", 4}), "tp_size 4 does not divide the 2 key/value heads"));
  TinyQwen2Vl odd;
  odd.vocabulary = 25;
  odd.write("odd");
  EXPECT_TRUE(says(story_of([&] {
                     to_mm("odd", "mm", {"[3]", "[4]", 2});
                   }),
                   "word_embeddings.weight: 25 cannot be divided by 2 tensor-parallel ranks"));
  const auto options = story_of([&] {
    run(MmCommand::hf_to_mm,
        "  hf_config: {hf_dir: hf}\n  parallel_config: {vit_pp_layers: [3], ep_size: 2, vpp: 1}\n");
  });
  for (const char* words : {"mm_dir is not given", "ep_size is 2", "vpp", "llm_pp_layers"})
    EXPECT_TRUE(says(options, words)) << words << " in:\n" << options;
  EXPECT_FALSE(fs::exists("mm"));
  EXPECT_FALSE(fs::exists("mm_tmp"));
}

TEST_F(MmConvert, AFolderOfAnotherLayoutOrModelIsRefusedByWhatItHas) {
  TinyQwen2Vl().write("hf");
  const Cut cut{"[[3, 0]]", "[[2, 2]]", 2};
  to_mm("hf", "mm", cut);
  const auto story = [&](const Cut& other) { return story_of([&] { to_hf("mm", "back", other); }); };
  const auto layers = story({"[[3, 0]]", "[[1, 3]]", 2});
  EXPECT_TRUE(says(layers,
                   "was saved with another layout: tp_size 2, vit_pp_layers [[3, 0]], llm_pp_layers [[2, 2]]; "
                   "the command says tp_size 2, vit_pp_layers [[3, 0]], llm_pp_layers [[1, 3]]"))
      << layers;
  EXPECT_TRUE(says(story({"[[3, 0]]", "[[2, 2]]", 1}), "was saved with another layout: tp_size 2"));
  EXPECT_TRUE(says(story({"[[3]]", "[[4]]", 2}), "was saved with another layout: tp_size 2"));
  EXPECT_TRUE(says(story({"[[3, 0], [0, 0]]", "[[1, 1], [1, 1]]", 2}), "was saved with another layout"));
  TinyQwen2Vl wide;
  wide.vocabulary = 32;
  wide.write("wide");
  EXPECT_TRUE(says(story_of([&] { to_hf("mm", "back", cut, "wide"); }), "the embedding is [24, 16]"));
  write("hf/config.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(says(story_of([&] { to_mm("hf", "x", cut); }), "model_type is llama"));
  EXPECT_TRUE(says(story_of([&] { resplit("mm", "x", cut, {"[[4]]", "[[4]]", 1}); }), "4 layers"));
  EXPECT_TRUE(says(story_of([&] { resplit("mm", "mm", cut, cut); }), "mm"));
  fs::remove_all("mm/release/mp_rank_01_000");
  EXPECT_TRUE(says(story_of([&] { to_hf("mm", "back", cut, "wide"); }),
                   "the folders of all tensor-parallel ranks and stages were expected"));
  EXPECT_FALSE(fs::exists("back"));
}

TEST_F(MmConvert, ACheckpointOfAnyLayoutIsReadUnderOurNames) {
  TinyQwen2Vl model;
  model.tied = true;
  model.write("hf");
  to_mm("hf", "mm", {"[[2, 1], [0, 0]]", "[[0, 1], [2, 1]]", 2});
  const auto found = mindspeed_mm::MmFormat().find("mm");
  ASSERT_TRUE(found);
  EXPECT_FALSE(mindspeed_mm::MmFormat().find("hf"));
  mindspeed_mm::MmCheckpoint checkpoint(*found, mappings_);
  const hugging_face::HuggingFaceModel expected("hf", mappings_);
  EXPECT_EQ(checkpoint.names().size(), expected.names().size());
  for (const auto& name : expected.names()) {
    ASSERT_TRUE(checkpoint.has(name)) << name;
    ASSERT_EQ(checkpoint.shape(name), expected.shape(name)) << name;
    std::vector<float> a(static_cast<std::size_t>(expected.shape(name).elements())), b = a;
    checkpoint.read(name, Tensor(std::span(a), expected.shape(name)));
    expected.read(name, std::span(b));
    EXPECT_EQ(a, b) << name;
  }
  EXPECT_TRUE(says(story_of([&] { checkpoint.recipe(); }), "does not describe its model"));
  EXPECT_TRUE(checkpoint.tokenizer_options().empty());
  checkpoint.describe_by("hf", mappings_);
  EXPECT_EQ(text(checkpoint.recipe()), text(expected.recipe()));
  EXPECT_EQ(checkpoint.tokenizer_options(), expected.tokenizer_options());
  EXPECT_EQ(checkpoint.tokenizer_options().size(), 2U);
  checkpoint.verify();
  // Weights under our names become the same checkpoint.
  const Cut cut{"[[3, 0]]", "[[1, 3]]", 2};
  to_mm("hf", "cut", cut);
  const auto config = hugging_face::read_hugging_face_config("hf/config.json", mappings_).model_config;
  mindspeed_mm::write_mindspeed_mm("ours", checkpoint, config, {2, {{{{3, 0}}}, {{{1, 3}}}}}, std::nullopt, mappings_);
  EXPECT_EQ(files_in("ours"), files_in("cut"));
}

/// Tensors that are columns of another one, as torch.chunk makes them: their rows do not lie one after the other.
TEST_F(MmConvert, ColumnsOfAnotherTensorAreRead) {
  const std::vector<float> elements = {0, 1, 2, 3, 4, 5, 6, 7};  // [2, 4]
  torch::PickleWriter p;
  const auto numbers = [&](std::initializer_list<std::int64_t> all) {
    p.mark();
    for (const auto number : all) p.integer(number);
    p.tuple();
  };
  const auto tensor = [&](std::int64_t first, std::initializer_list<std::int64_t> shape,
                          std::initializer_list<std::int64_t> strides) {
    p.global("torch._utils", "_rebuild_tensor_v2");
    p.mark();
    p.mark();
    p.text("storage");
    p.global("torch", "FloatStorage");
    p.text("0");
    p.text("cpu");
    p.integer(8);
    p.tuple();
    p.persistent();
    p.integer(first);
    numbers(shape);
    numbers(strides);
    p.boolean(false);
    p.none();
    p.tuple();
    p.call();
  };
  p.empty_list();
  p.mark();
  tensor(2, {2, 2}, {4, 1});
  tensor(0, {4, 2}, {1, 4});
  tensor(2, {2, 3}, {4, 1});
  tensor(0, {1000, 1000}, {0, 0});
  p.append_items();
  {
    torch::ZipWriter zip("view.pt");
    zip.add("view/data.pkl", p.finish());
    zip.add("view/data/0", std::as_bytes(std::span(elements)));
    zip.finish();
  }
  const torch::TorchFile file("view.pt");
  const auto read = [&](std::size_t i) {
    const auto& node = *file.root().items[i];
    std::vector<float> out(static_cast<std::size_t>(file.header(node, "view").elements()));
    file.read(node, "view", std::as_writable_bytes(std::span(out)));
    return out;
  };
  EXPECT_EQ(read(0), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(read(1), (std::vector<float>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_TRUE(says(story_of([&] { (void)file.tensor(*file.root().items[0], "view"); }), "one after the other"));
  EXPECT_TRUE(says(story_of([&] { read(2); }), "of a storage of"));
  EXPECT_TRUE(says(story_of([&] { read(3); }), "impossible"));
}

}  // namespace
}  // namespace tessera
