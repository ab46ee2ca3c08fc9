#include "framework/base/cpu_limit.h"

#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "tests/own_folder.h"

namespace tessera {
namespace {

/// The control groups of a process as files in the current folder.
class CpuQuotas : public InOwnFolder {
 protected:
  static void put(const std::string& name, const std::string& words) {
    std::filesystem::create_directories(std::filesystem::path(name).parent_path());
    write(name, words + "\n");
  }
  /// The quota of a process with this /proc/self/cgroup; 0: none.
  static double quota(const std::string& groups) {
    write("groups", groups);
    const auto found = cpu_quota({"groups", "root"});
    return found ? found->cores : 0;
  }
};

TEST_F(CpuQuotas, OfVersion2AreInOneFile) {
  put("root/docker/cpu.max", "150000 100000");
  EXPECT_EQ(quota("0::/docker\n"), 1.5);
  EXPECT_EQ(cpu_quota({"groups", "root"})->source, "the CPU quota of the control group (root/docker/cpu.max)");
  put("root/docker/cpu.max", "max 100000");
  EXPECT_EQ(quota("0::/docker\n"), 0);
}

TEST_F(CpuQuotas, OfVersion1AreInTwoFiles) {
  put("root/cpu/pod/cpu.cfs_quota_us", "400000");
  put("root/cpu/pod/cpu.cfs_period_us", "200000");
  EXPECT_EQ(quota("4:memory:/other\n1:cpu:/pod\n0::/\n"), 2);
  put("root/cpu/pod/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(quota("1:cpu:/pod\n"), 0);
  put("root/cpu,cpuacct/pod/cpu.cfs_quota_us", "100000");
  put("root/cpu,cpuacct/pod/cpu.cfs_period_us", "100000");
  std::filesystem::remove_all("root/cpu");
  EXPECT_EQ(quota("1:cpu,cpuacct:/pod\n"), 1);
  EXPECT_EQ(quota("1:cpuset:/pod\n"), 0);
}

TEST_F(CpuQuotas, TheSmallestOfNestedGroupsCounts) {
  put("root/a/cpu.max", "100000 100000");
  put("root/a/b/cpu.max", "300000 100000");
  put("root/a/b/c/cpu.max", "max 100000");
  EXPECT_EQ(quota("0::/a/b/c\n"), 1);
  put("root/a/cpu.max", "max 100000");
  EXPECT_EQ(quota("0::/a/b/c\n"), 3);
}

TEST_F(CpuQuotas, OfAContainerAreAtTheRootWhateverThePathOfTheGroup) {
  put("root/cpu.max", "250000 100000");
  EXPECT_EQ(quota("0::/kubepods/pod1/not/visible/here\n"), 2.5);
  EXPECT_EQ(quota("0::/../other\n"), 2.5);
}

TEST(UsableCores, AreNotMoreThanThoseOfTheAffinityMask) {
  EXPECT_GE(usable_core_count(), 1);
  EXPECT_LE(usable_core_count(), allowed_cores());
  EXPECT_EQ(usable_core_count(1), 1);
}

}  // namespace
}  // namespace tessera
