// Images on four ranks: on every layout a run has the losses of one rank, with frozen parts too; it resumes to the bit
// and takes the memory that is foreseen. A third of the samples has no image.
#include <gtest/gtest.h>

#include "tests/images_of_rows.h"
#include "tests/recipe/ranks/runs.h"

namespace tessera::recipe {
namespace {

/// Every sample has one image of as many patches as a sample can have.
class FullImages final : public data::Dataset {
 public:
  static BatchFields declared() {
    auto all = model::image_fields();
    all[all.size() - 2].most_rows = 16;
    all.back().most_rows = 1;
    return all;
  }
  std::int64_t samples() const override { return 400; }
  std::int64_t seq_length() const override { return 16; }
  const BatchFields& fields() const override {
    static const auto all = declared();
    return all;
  }
  bool extents_vary() const override { return true; }
  std::int64_t extents(std::int64_t, std::span<std::int64_t> rows) const override {
    model::image_extents({{1, 4, 4}}, rows);
    return seq_length();
  }
  void read(std::int64_t index, const SampleView& out) const override {
    model::write_image_sample({{1, 4, 4}}, static_cast<unsigned>(index), out);
  }
};

std::unique_ptr<data::DataSplits> make_full_images(const options::NoOptions&, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<FullImages>();
  return splits;
}

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ImagesOnRanks : public RunsOfRanks {
 protected:
  ImagesOnRanks() {
    data::register_images(registries.datasets);
    registries.datasets.add("full_images", make_full_images, "Samples of one image each.");
    registries.datasets.declare_fields("full_images",
                                       [](const data::DatasetRegistry::Choice&) { return FullImages::declared(); });
  }
  /// Two layers of the tower, two of the text model.
  Lines model() const {
    const std::string v = "vision_config.";
    return {m + "use_visual_encoder=true",
            m + "num_layers=2",
            m + "position_embedding_type=mrope",
            m + "mrope_section=[1, 1, 0]",
            m + "hidden_dropout_rate=0",
            m + "init_method_std=0.3",
            v + "num_layers=2",
            v + "hidden_size=16",
            v + "num_attention_heads=4",
            v + "in_channels=2",
            v + "patch_size=2",
            v + "temporal_patch_size=1",
            v + "image_token_id=27",
            v + "video_token_id=28",
            v + "init_method_std=0.3",
            "dataset_config.dataset_type=images_of_rows",
            "dataset_config.batch_size=2"};
  }
  std::vector<double> train(const std::string& run, const Lines& sets) { return losses_of(run, model() + sets); }
  Lines tensor(int ranks, bool sequence = false) const {
    return {text(p, "tensor_model_parallel_size=", ranks), text(p, "sequence_parallel=", sequence ? "true" : "false")};
  }
  const Lines sharded = {"training_config.use_distributed_optimizer=true"};
  const Lines recomputed = {m + "recompute_granularity=full", m + "recompute_method=uniform",
                            m + "recompute_num_layers=1"};
};

TEST_F(ImagesOnRanks, LearnOnEveryLayoutAsOnOneRank) {
  const std::vector<Lines> layouts = {{},
                                      sharded,
                                      tensor(2),
                                      tensor(2, true) + sharded,
                                      tensor(4, true),
                                      tensor(2, true) + stages(2, "[1,3]"),
                                      tensor(2) + stages(2, "[3,1]"),
                                      stages(2, "[2,2]") + sharded + recomputed,
                                      stages(2, "[[1,1],[1,1]]"),
                                      stages(4, "[1,1,1,1]")};
  expect_same_on(layouts, model() + Lines{m + "untie_embeddings_and_output_weights=true"});
  expect_same_on({sharded, tensor(2, true) + stages(2, "[2,2]"), stages(4, "[1,1,1,1]")},
                 model() + Lines{"dataset_config.batch_size=1", "training_config.calculate_per_token_loss=true"});
}

TEST_F(ImagesOnRanks, LearnWithFrozenPartsAsOnOneRank) {
  const auto frozen = [&](const std::string& names) {
    return model() + Lines{"training_config.frozen_parameters=[" + names + "]"};
  };
  const std::vector<Lines> layouts = {tensor(2, true) + sharded, stages(4, "[1,1,1,1]"), stages(2, "[[1,1],[1,1]]")};
  expect_same_on(layouts, frozen(R"('vision_.*')"));
  expect_same_on(layouts, frozen(R"('vision_projection\..*')"));
  expect_same_on(layouts, frozen(R"('decoder\..*', 'embedding\..*')"));
}

/// A chunk without layers passes on patches, features or text; the first one projects patches, the last one has the
/// loss.
TEST_F(ImagesOnRanks, LearnWithStagesWithoutLayersAsOnOneRank) {
  const std::string frozen = "training_config.frozen_parameters=";
  const auto ends =
      Lines{p + "account_for_embedding_in_pipeline_split=true", p + "account_for_loss_in_pipeline_split=true",
            p + "pipeline_model_parallel_size=2", p + "virtual_pipeline_model_parallel_size=3"};  // [[0,1,1],[1,1,0]]
  const std::vector<Lines> layouts = {stages(4, "[0,2,0,2]"),
                                      stages(4, "[2,0,2,0]") + recomputed,
                                      tensor(2, true) + stages(2, "[0,4]"),
                                      tensor(2) + stages(2, "[4,0]"),
                                      stages(2, "[[0,2],[2,0]]"),
                                      stages(2, "[[2,0],[0,2]]") + sharded,
                                      ends,
                                      stages(4, "[1,2,1]") + Lines{p + "standalone_embedding_stage=true"}};
  expect_same_on(layouts, model() + Lines{m + "untie_embeddings_and_output_weights=true"});
  expect_same_on({stages(4, "[0,2,2,0]"), stages(4, "[2,0,2,0]"), stages(4, "[0,0,4,0]"), stages(2, "[[0,2],[2,0]]")},
                 model() + Lines{"dataset_config.batch_size=1", "training_config.calculate_per_token_loss=true"});
  expect_same_on({stages(4, "[0,2,0,2]"), stages(2, "[[0,2],[0,2]]")}, model() + Lines{frozen + R"(['vision_.*'])"});
  expect_same_on({stages(4, "[0,2,2,0]"), stages(2, "[[0,2],[2,0]]")},
                 model() + Lines{frozen + R"(['decoder\..*', 'embedding\..*'])"});
}

/// The second run with a cache finds all features in it; the third finds damaged files, computes and replaces them.
TEST_F(ImagesOnRanks, LearnWithKeptFeaturesAsWithoutToTheBit) {
  const Lines frozen = {"training_config.frozen_parameters=['vision_.*']"};
  const auto features = folder_ / "features";
  const auto files = [&] {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(features))
      if (entry.is_regular_file()) all.push_back(entry.path());
    return all;
  };
  for (const auto& layout : {sharded, tensor(2, true) + sharded, tensor(2) + stages(2, "[2,2]")}) {
    const Lines cached = {"vision_config.feature_cache_path=" + features.string()};
    const auto name = text("plain", layout.size(), layout.back().size());
    const auto expected = train(name, layout + frozen);
    ASSERT_GT(expected.size(), 1U);
    EXPECT_EQ(train(name + "cold", layout + frozen + cached), expected);
    world().all().barrier("files are written");
    const auto written_files = files();
    EXPECT_FALSE(written_files.empty());
    EXPECT_EQ(train(name + "warm", layout + frozen + cached), expected);
    world().all().barrier("files are read");
    EXPECT_EQ(files().size(), written_files.size());
    if (world().rank() == 0)
      for (const auto& file : written_files) std::filesystem::resize_file(file, 50);
    world().all().barrier("files are damaged");
    EXPECT_EQ(train(name + "damaged", layout + frozen + cached), expected);
    world().all().barrier("files are replaced");
    EXPECT_EQ(files().size(), written_files.size());
  }
}

TEST_F(ImagesOnRanks, LearnAdaptersOfBothTowersAsOnOneRank) {
  const std::string lora = "lora_config.";
  expect_same_on(
      {tensor(2, true) + sharded, tensor(4), stages(4, "[1,1,1,1]")},
      model() +
          Lines{lora + "use_lora=true", lora + "target_modules=[linear_qkv, linear_fc1, linear_fc2]",
                // With the default alpha, 16, random factors of rank 3 saturate the softmax: gradient norms of one
                // rank then differ by 1e-4 between instruction sets; with 3 by less than 3e-6.
                lora + "init_lora_weights=false", lora + "lora_rank=3", lora + "lora_alpha=3",
                "optimizer_config.learning_rate=1e-3"});
}

TEST_F(ImagesOnRanks, ResumeToTheBitAndOnAnotherLayout) {
  const Lines resumes = {"training_config.resume_training=auto", "training_config.training_iters=6"},
              stops = resumes + Lines{"training_config.exit_interval=3"};
  for (const auto& layout : {stages(4, "[1,1,1,1]"), stages(4, "[0,2,0,2]"), tensor(2, true) + sharded}) {
    const auto& name = layout.back();
    const auto expected = train("whole" + name, layout + resumes);
    ASSERT_EQ(expected.size(), 6U);
    EXPECT_EQ(train("parts" + name, layout + stops).size(), 3U);
    EXPECT_EQ(train("parts" + name, layout + resumes), expected);
    EXPECT_EQ(train("moved" + name, layout + stops).size(), 3U);
    const auto moved = train("moved" + name, tensor(2) + stages(2, "[3,1]") + resumes);
    ASSERT_EQ(moved.size(), expected.size());
    for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], expected[i], 2e-5) << i;
  }
}

/// In a pipeline the memory of a message is taken when its extents have arrived, before or after that of another: then
/// the peak is within that of a few messages.
TEST_F(ImagesOnRanks, TakeTheMemoryThatIsForeseen) {
  for (const auto& sets :
       {tensor(2, true) + stages(2, "[1,3]"), stages(2, "[2,2]"), stages(2, "[[1,1],[1,1]]"), stages(4, "[1,1,1,1]"),
        stages(4, "[1,1,1,1]") + recomputed, stages(4, "[0,2,2,0]"), tensor(4)}) {
    const auto bytes = activations_of(model() + Lines{"dataset_config.dataset_type=full_images"} + sets);
    constexpr std::int64_t message = 2 * 16 * 16 * 4;  // of the text model
    EXPECT_NEAR(bytes.foreseen, bytes.taken, bytes.stages > 1 ? 2 * message : 0) << sets.back();
    EXPECT_GT(bytes.flops, 1e6);
    EXPECT_NEAR(bytes.foreseen_flops, bytes.flops, 1e-9 * bytes.flops) << sets.back();
  }
}

}  // namespace
}  // namespace tessera::recipe
