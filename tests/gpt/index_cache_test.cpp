#include "framework/gpt/index_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "framework/base/build_lock.h"
#include "framework/base/files.h"
#include "framework/base/system_call.h"
#include "framework/gpt/md5.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::gpt {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t size = 20000;

std::vector<IndexArray> squares() {
  std::vector<IndexArray> arrays;
  arrays.emplace_back(IndexType::int64, std::vector<std::int64_t>{size, 2});
  auto values = arrays[0].values<std::int64_t>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * i);
  return arrays;
}

IndexCache::Request request(std::function<std::vector<IndexArray>()> build = squares) {
  return {
      "{\n    \"a\": 1\n}", "GPTDataset-train", {{"sample_index", IndexType::int64, {size, 2}}}, std::move(build), {}};
}

bool is_squares(const IndexCache::Result& result) {
  const auto& array = result.arrays.at(0);
  if (array.shape() != std::vector<std::int64_t>{size, 2}) return false;
  for (std::int64_t i = 0; i < array.size(); ++i)
    if (array[i] != i * i) return false;
  return true;
}

class Cache : public InOwnFolder {
 protected:
  IndexCache::Result get(const fs::path& folder = "cache", bool may_write = true) {
    told_.clear();
    const auto tell = [&](const std::string& line) {
      told_ += line + "\n";
      has_told_ = true;
    };
    return IndexCache({folder, false, may_write, tell}).get(request());
  }
  static fs::path file(const std::string& name) {
    return fs::path("cache") / (md5_hex(request().description) + "-GPTDataset-train-" + name);
  }
  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& one : list_folder("cache")) all.push_back(one.filename().string());
    return all;
  }
  std::string told_;
  std::atomic<bool> has_told_ = false;
};

TEST_F(Cache, IsWrittenOnceAndThenMapped) {
  EXPECT_TRUE(get().built);
  EXPECT_EQ(names(),
            (std::vector<std::string>{file("description.txt").filename(), file("sample_index.npy").filename()}));
  const auto again = get();
  EXPECT_FALSE(again.built);
  EXPECT_TRUE(is_squares(again));
  EXPECT_EQ(told_, "");
  EXPECT_EQ(read_file(file("description.txt")), request().description);
  const auto bytes = read_file(file("sample_index.npy"));
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, 63), "{'descr': '<i8', 'fortran_order': False, 'shape': (20000, 2), }");
  EXPECT_EQ(bytes[127], '\n');
  EXPECT_EQ(bytes.size(), 128U + 16 * size);
}

TEST_F(Cache, ThatDoesNotFitIsToldOfAndBuiltAgain) {
  const auto damage = [&](const std::string& name, const std::function<void(std::string&)>& change) {
    auto bytes = read_file(file(name));
    change(bytes);
    std::ofstream(file(name), std::ios::binary) << bytes;
    const auto result = get();
    EXPECT_TRUE(result.built && is_squares(result)) << name;
    const auto told = told_;
    EXPECT_FALSE(get().built);
    return told;
  };
  (void)get();
  EXPECT_NE(damage("sample_index.npy", [](auto& b) { b.resize(b.size() - 8); }).find("cut short"), std::string::npos);
  EXPECT_NE(damage("sample_index.npy", [](auto& b) { b.resize(5); }).find("no NumPy file"), std::string::npos);
  EXPECT_NE(damage("sample_index.npy", [](auto& b) { b[22] = '4'; }).find("sample_index.npy"), std::string::npos);
  EXPECT_NE(damage("sample_index.npy", [](auto& b) { b.replace(b.find("(20000, 2)"), 10, "(2, 20000)"); })
                .find("expected <i8 with (20000, 2)"),
            std::string::npos);
  EXPECT_NE(damage("description.txt", [](auto& b) { b += "\n"; }).find("describes another index"), std::string::npos);
}

TEST_F(Cache, IsLeftAloneWhenNothingMayBeWritten) {
  EXPECT_TRUE(get("cache", false).built);
  EXPECT_FALSE(fs::exists("cache"));
  (void)get();
  EXPECT_FALSE(get("cache", false).built);
}

TEST_F(Cache, StaysInMemoryWhereItCannotBeWritten) {
  std::ofstream("file") << "x";
  EXPECT_TRUE(is_squares(get("file/cache")));
  EXPECT_NE(told_.find("kept in memory"), std::string::npos) << told_;
  EXPECT_NE(told_.find("data_cache_path"), std::string::npos) << told_;
  EXPECT_EQ(std::count(told_.begin(), told_.end(), '\n'), 1);
}

/// Eight processes that want the same index at once. `build` runs in a child that has the lock.
int race(const std::function<std::vector<IndexArray>()>& build) {
  constexpr int processes = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const auto child = fork();
    if (child == 0) _exit(is_squares(IndexCache({"cache", false, true, {}}).get(request(build))) ? 0 : 1);
    children.push_back(child);
  }
  int good = 0;
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 0;
  }
  return good;
}

/// Counts builds: a byte each.
void mark() { std::ofstream("builds", std::ios::app) << 'b'; }

TEST_F(Cache, IsBuiltByOneOfEightProcesses) {
  EXPECT_EQ(race([] {
              mark();
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
              return squares();
            }),
            8);
  EXPECT_EQ(read_file("builds"), "b");
  EXPECT_EQ(names().size(), 2U);  // no lock, nothing unfinished
}

TEST_F(Cache, IsTakenOverWhenItsBuilderDies) {
  EXPECT_EQ(race([] {
              const bool first = !fs::exists("builds");
              mark();
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
              if (first) {
                std::ofstream(file("sample_index.npy").string() + ".host.1.unfinished") << "half";
                (void)raise(SIGKILL);
              }
              return squares();
            }),
            7);
  EXPECT_EQ(read_file("builds"), "bb");
  EXPECT_EQ(names().size(), 2U);
}

TEST_F(Cache, TellsWhoIsWaitedFor) {
  fs::create_directory("cache");
  auto lock = BuildLock::try_take(file("lock"));
  ASSERT_TRUE(lock);
  EXPECT_FALSE(BuildLock::try_take(file("lock")));
  std::thread builder([&] {
    for (int i = 0; i < 12000 && !has_told_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lock.reset();
  });
  EXPECT_TRUE(get().built);
  builder.join();
  EXPECT_NE(told_.find(text("waiting for the index of the samples (GPTDataset-train), which process ", getpid(),
                            " on host ", host_name())),
            std::string::npos)
      << told_;
}

TEST_F(Cache, OfAHostIsNotWaitedForByOthersWithoutSharedStorage) {
  fs::create_directory("cache");
  const auto of_another = BuildLock::try_take(file("another.lock"));
  EXPECT_TRUE(IndexCache({"cache", true, true, {}}).get(request()).built);
  const auto of_all = BuildLock::try_take(file("lock"));  // as a host with shared storage would hold it
  fs::remove(file("description.txt"));
  EXPECT_TRUE(IndexCache({"cache", true, true, {}}).get(request()).built);
}

}  // namespace
}  // namespace tessera::gpt
