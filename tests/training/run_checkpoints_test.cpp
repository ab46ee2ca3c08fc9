// Which checkpoints of a run are kept.
#include "framework/training/saving/run_checkpoints.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/progress.h"
#include "framework/training/setup/given_checkpoint.h"
#include "tests/own_folder.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;
using Iterations = std::vector<std::int64_t>;

class RunCheckpoints : public InOwnFolder {
 protected:
  RunCheckpoints() { options.output_dir = "run"; }

  void save(std::int64_t iteration, const std::string& run = "ours",
            const std::string& root = "run/checkpoints") const {
    std::vector<float> weight(12);
    checkpoint::Progress progress;
    progress.run = run;
    checkpoint::save_checkpoint(root, options.prefix, iteration,
                                std::vector{checkpoint::whole("weight", Tensor(std::span(weight), Shape{3, 4}))},
                                {{checkpoint::progress_blob, checkpoint::write_progress(progress)}});
  }
  std::string folder(std::int64_t iteration) const {
    return "run/checkpoints/" + checkpoint::checkpoint_name(options.prefix, iteration);
  }
  Iterations kept() const {
    delete_old(options, {}, {}, "ours");
    Iterations out;
    for (const auto& info : checkpoint::list_checkpoints("run/checkpoints", options.prefix))
      out.push_back(info.iteration);
    return out;
  }

  TrainingOptions options;
};

TEST_F(RunCheckpoints, TheNewestAreKeptAndOfOlderOnesMultiples) {
  for (std::int64_t i = 1; i <= 9; ++i) save(i);
  options.keep_checkpoint_max = 5;
  EXPECT_EQ(kept(), (Iterations{9, 8, 7, 6, 5}));
  for (std::int64_t i = 1; i <= 4; ++i) save(i);
  options.keep_checkpoint_max = 2;
  options.save_retain_interval = 3;
  EXPECT_EQ(kept(), (Iterations{9, 8, 6, 3}));
  fs::create_directories("run/checkpoints/network_iter_0000010_tmp");
  EXPECT_EQ(kept(), (Iterations{9, 8, 6, 3}));
  EXPECT_FALSE(fs::exists("run/checkpoints/network_iter_0000010_tmp"));
}

TEST_F(RunCheckpoints, OfNonPersistentOnesTheNewestIsKeptAndTheyCountApart) {
  const auto newest = [&] {
    delete_old(options, {}, {}, "ours");
    Iterations out;
    for (const auto& found : checkpoints_of_folder(options, {})) out.push_back(found.iteration);
    return out;
  };
  options.keep_checkpoint_max = 2;
  options.non_persistent_save_interval = 1;
  for (const std::string& folder : {std::string(), std::string("elsewhere")}) {
    const auto root = folder.empty() ? "run/non_persistent" : folder;
    if (!folder.empty()) options.non_persistent_global_ckpt_dir = folder;
    for (std::int64_t i = 1; i <= 3; ++i) save(i);
    for (std::int64_t i = 1; i <= 5; ++i) save(i, i == 2 ? "theirs" : "ours", root);
    EXPECT_EQ(newest(), (Iterations{5, 3, 2, 2})) << root;  // that of another run stays
    EXPECT_EQ(checkpoints_of_folder(options, {})[0].folder, non_persistent_folder(options) / "network_iter_0000005");
    write(root + "/network_iter_0000005/manifest.json", "{}");
    for (const std::int64_t i : {3, 4}) save(i, "ours", root);
    EXPECT_EQ(newest(), (Iterations{5, 4, 3, 2, 2})) << root;  // the newest that can be opened, too
    save(6, "ours", root);
    EXPECT_EQ(newest(), (Iterations{6, 3, 2, 2})) << root;
    EXPECT_EQ(is_in_run_folder(options, checkpoints_of_folder(options, {})[0].folder), folder.empty());
  }
}

TEST_F(RunCheckpoints, TheNewestThatCanBeOpenedIsKept) {
  for (std::int64_t i = 1; i <= 5; ++i) save(i);
  options.keep_checkpoint_max = 1;
  for (const std::int64_t i : {5, 4}) write(folder(i) + "/manifest.json", "{}");
  EXPECT_EQ(kept(), (Iterations{5, 4, 3}));
  save(6);
  EXPECT_EQ(kept(), (Iterations{6}));
}

TEST_F(RunCheckpoints, OfOthersAndLinksAndWhatIsLoadedNothingIsDeleted) {
  for (std::int64_t i = 1; i <= 5; ++i) save(i, i == 3 ? "theirs" : "ours");
  fs::rename(folder(1), "elsewhere");
  fs::create_directory_symlink(fs::absolute("elsewhere"), folder(1));
  options.keep_checkpoint_max = 1;
  options.load_checkpoint = folder(2);
  EXPECT_EQ(kept(), (Iterations{5, 3, 2, 1}));
  EXPECT_TRUE(fs::exists("elsewhere/manifest.json"));
  options.load_checkpoint.reset();
  EXPECT_EQ(kept(), (Iterations{5, 3, 1}));
}

TEST_F(RunCheckpoints, OnesThatCannotBeDeletedAreNamedAndStay) {
  for (std::int64_t i = 1; i <= 4; ++i) save(i);
  options.keep_checkpoint_max = 1;
  fs::permissions(".", fs::perms::all);
  for (const auto& entry : fs::recursive_directory_iterator(".")) fs::permissions(entry, fs::perms::all);
  constexpr auto writable = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  fs::permissions(folder(2), writable, fs::perm_options::remove);
  const auto deletes_the_others = [&] {
    constexpr uid_t nobody = 65534;
    if (geteuid() == 0 && setuid(nobody) != 0) std::exit(2);  // root may delete everything
    std::exit(kept() == Iterations{4, 2} ? 0 : 1);
  };
  EXPECT_EXIT(deletes_the_others(), testing::ExitedWithCode(0), "stays: .*network_iter_0000002: .*Permission denied");
  EXPECT_TRUE(fs::exists(folder(2) + "/manifest.json"));
}

TEST_F(RunCheckpoints, TheOneOfAnIterationIsChosenByItsNumber) {
  for (const std::int64_t i : {2, 4}) save(i);
  const auto all = checkpoints_of_folder(options, {});
  EXPECT_EQ(of_step(all, 2, "run").at(0).folder, folder(2));
  try {
    of_step(all, 3, "run");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "training_config.ckpt_step is 3, but run has no checkpoint of that iteration; "
              "it has those of 4, 2; give another, or leave it out");
  }
}

}  // namespace
}  // namespace tessera::training
