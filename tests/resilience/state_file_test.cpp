#include "framework/resilience/state_file.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "framework/base/files.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::resilience {
namespace {

class StateFileTest : public InOwnFolder {
 protected:
  StateFileTest() : InOwnFolder("/dev/shm/") {}
  static constexpr StateKey key = {11, 22, 3, 4};
  static StateFile open(const StateKey& with = key, std::vector<std::size_t> sections = {100, 5000, 70}) {
    return StateFile("state.3", with, std::move(sections), 2);
  }
  static void leave(bool ready) {
    auto file = open();
    std::memset(file.section(1).data(), 7, file.section(1).size());
    if (ready) file.set_ready();
  }
};

TEST_F(StateFileTest, WhatAReadyProcessLeftIsTakenOver) {
  leave(true);
  const auto file = open();
  EXPECT_TRUE(file.taken_over());
  EXPECT_EQ(file.section(1)[4999], std::byte{7});
  EXPECT_EQ(file.section(0)[0], std::byte{0});
}

TEST_F(StateFileTest, AProcessThatWasNotReadyLeavesNothing) {
  leave(false);
  const auto file = open();
  EXPECT_FALSE(file.taken_over());
  EXPECT_TRUE(std::ranges::all_of(file.section(1), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(StateFileTest, WhatWasDiscardedIsNotTakenOver) {
  leave(true);
  open().discard();
  EXPECT_FALSE(std::filesystem::exists("state.3"));
  EXPECT_FALSE(open().taken_over());
}

TEST_F(StateFileTest, ALinkLeadsToMemoryThatTheLauncherHolds) {
  const int memory = memfd_create("state", 0);
  std::filesystem::create_symlink(text("/proc/self/fd/", memory), "state.3");
  leave(true);
  EXPECT_TRUE(open().taken_over());
  EXPECT_EQ(open().section(1)[4999], std::byte{7});
  open().discard();
  EXPECT_EQ(lseek(memory, 0, SEEK_END), 0);
  EXPECT_FALSE(open().taken_over());
  EXPECT_EQ(open().section(1)[4999], std::byte{0});
  close(memory);
}

TEST_F(StateFileTest, AFileOnADiskIsRefused) {
  struct statfs system = {};
  if (statfs("/", &system) != 0 || system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "everything here is in memory";
  const auto story = story_of([] { StateFile("/state.of.a.test", key, {100}, 1); });
  EXPECT_TRUE(says(story, "/ is not in memory")) << story;
  EXPECT_FALSE(std::filesystem::exists("/state.of.a.test"));
}

TEST_F(StateFileTest, SectionsBeginAtPagesAndAllIsReservedForItsOwner) {
  const auto file = open();
  EXPECT_EQ(file.offset(0), 4096U);
  EXPECT_EQ(file.offset(1), 2 * 4096U);
  EXPECT_EQ(file.offset(2), 4 * 4096U);
  struct stat found = {};
  ASSERT_EQ(stat("state.3", &found), 0);
  EXPECT_EQ(found.st_size, 5 * 4096);
  EXPECT_GE(found.st_blocks * 512, found.st_size);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
}

TEST_F(StateFileTest, WhatAnotherRunLeftIsRefusedAndStaysAsItIs) {
  leave(true);
  const auto before = read_file("state.3");
  const auto refusal = [](const StateKey& other) { return story_of([&] { open(other); }); };
  EXPECT_TRUE(says(refusal({11, 23, 3, 4}), "with another recipe")) << refusal({11, 23, 3, 4});
  EXPECT_TRUE(says(refusal({12, 22, 3, 4}), "with another model or layout"));
  EXPECT_TRUE(says(refusal({11, 22, 2, 4}), "by another rank or number of ranks"));
  EXPECT_TRUE(says(refusal({11, 22, 3, 8}), "by another rank or number of ranks"));
  EXPECT_TRUE(says(story_of([] { open(key, {100, 5001, 70}); }), "with another model or layout"));
  EXPECT_THROW(open({11, 23, 3, 4}), ConfigError);
  EXPECT_EQ(read_file("state.3"), before);
}

TEST_F(StateFileTest, WithoutRoomItSaysHowManyBytesAreNeeded) {
  const auto story = story_of([] { open(key, {100, std::size_t{1} << 60}); });
  EXPECT_TRUE(says(story, "the state of rank 3 needs 1152921504606855168 bytes in")) << story;
  EXPECT_FALSE(std::filesystem::exists("state.3"));
}

/// The flags of the mapping that has this address, as /proc/self/smaps lists them.
std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, last = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> first >> dash >> last && dash == '-') here = first <= where && where < last;
    if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

TEST_F(StateFileTest, CoreDumpsDoNotContainIt) {
  const auto file = open();
  EXPECT_NE(flags_of(file.section(1).data()).find(" dd "), std::string::npos) << flags_of(file.section(1).data());
}

}  // namespace
}  // namespace tessera::resilience
