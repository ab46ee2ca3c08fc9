#include "framework/base/mapped_access.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/mapped_pages.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"

namespace tessera {
namespace {

using MappedAccess = InOwnFolder;

std::int64_t sum_of(std::span<const std::byte> bytes) {
  std::int64_t sum = 0;
  for (const auto byte : bytes) sum += static_cast<std::int64_t>(byte);
  return sum;
}

TEST_F(MappedAccess, TellsOfAPageThatIsNoMoreThereInEveryThread) {
  constexpr std::size_t page = 4096, pages = 8;
  write("file", std::string(pages * page, '\1'));
  const MappedFile file("file");
  std::filesystem::resize_file("file", 5 * page);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        for (std::size_t p = 0; p < pages; ++p) {
          std::int64_t sum = 0;
          const bool read = access_mapped([&] { sum = sum_of(file.bytes().subspan(p * page, page)); });
          EXPECT_EQ(read, p < 5) << "page " << p;
          EXPECT_EQ(sum, read ? static_cast<std::int64_t>(page) : 0);
        }
    });
  for (auto& thread : threads) thread.join();
}

// Outside of access_mapped what is missing reads as zeros, to the end of the mapping.
TEST_F(MappedAccess, AMappedFileTellsThatItLostPages) {
  constexpr std::size_t page = 4096, pages = 8;
  write("file", std::string(pages * page + 100, '\1'));
  write("other", std::string(page, '\1'));
  MappedFile file("file");
  const MappedFile other("other");
  file.require_intact();
  std::filesystem::resize_file("file", 5 * page);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { EXPECT_EQ(sum_of(file.bytes()), static_cast<std::int64_t>(5 * page)); });
  for (auto& thread : threads) thread.join();
  EXPECT_THROW(require_no_lost_pages(), IoError);
  require_no_lost_pages();  // it is reported now
  const MappedFile moved(std::move(file));
  EXPECT_THROW(moved.require_pages(), IoError);
  EXPECT_THROW(moved.require_intact(), IoError);
  other.require_intact();
  EXPECT_THROW(read_intact(moved, []() -> int { throw ConfigError("zeros are no header"); }), IoError);
  EXPECT_THROW(read_intact(other, []() -> int { throw ConfigError("wrong"); }), ConfigError);
  EXPECT_EQ(read_intact(other, [] { return 5; }), 5);
  const MappedFile again("file");
  again.require_intact();
}

TEST_F(MappedAccess, ALossThatNobodyAskedAboutIsKeptUntilItIsReported) {
  write("file", std::string(8192, '\1'));
  EXPECT_EQ(take_unreported_loss(), "");
  {
    const MappedFile file("file");
    std::filesystem::resize_file("file", 0);
    EXPECT_EQ(sum_of(file.bytes()), 0);
  }
  EXPECT_EQ(take_unreported_loss(), "file");
  EXPECT_EQ(take_unreported_loss(), "");
}

// Without a signal: the rest of the last page reads as zeros.
TEST_F(MappedAccess, AMappedFileTellsThatItShrankWithinItsLastPage) {
  write("file", std::string(100, '\1'));
  const MappedFile file("file");
  std::filesystem::resize_file("file", 50);
  EXPECT_THROW(file.require_intact(), IoError);
  std::filesystem::resize_file("file", 100);
  std::filesystem::rename("file", "former");
  write("file", "another");  // under the same name
  file.require_intact();
}

TEST_F(MappedAccess, OutsideOfItTheSignalEndsTheProcess) {
  // AddressSanitizer handles the signal: it reports the place and ends the process with an exit code.
  const auto ended = [](int status) {
    return sanitized ? !WIFEXITED(status) || WEXITSTATUS(status) != 0
                     : WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
  };
  write("file", std::string(8192, '\1'));
  const int file = ::open("file", O_RDONLY);
  void* memory = ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, file, 0);  // that no MappedFile has
  ASSERT_NE(memory, MAP_FAILED);
  ::close(file);
  ASSERT_TRUE(access_mapped([] {}));
  std::filesystem::resize_file("file", 0);
  EXPECT_EXIT(std::exit(sum_of({static_cast<const std::byte*>(memory), 8192}) < 0 ? 1 : 0), ended, "");
  EXPECT_EXIT(access_mapped([] { raise(SIGBUS); }), ended, "");
}

/// Memory of mapped files that counts as this process's, in KiB.
std::int64_t resident_file_kibibytes() {
  std::ifstream file("/proc/self/status");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return std::stoll(words.substr(words.find("RssFile:") + 8));
}

TEST_F(MappedAccess, PagesAreGivenBackOnlyWhileSomebodySparesThemAndComeBackUnchanged) {
  constexpr std::int64_t mebibytes = 32;
  write("file", std::string(mebibytes << 20, 'x'));
  const MappedFile mapped("file");
  const auto none = resident_file_kibibytes(), sum = sum_of(mapped.bytes());
  mapped_pages_used();
  EXPECT_GT(resident_file_kibibytes(), none + (mebibytes - 4) * 1024);
  const SparesMappedPages sparing;
  mapped_pages_used();
  EXPECT_LT(resident_file_kibibytes(), none + 4 * 1024);
  EXPECT_EQ(sum_of(mapped.bytes()), sum);
  EXPECT_NO_THROW(mapped.require_intact());
}

}  // namespace
}  // namespace tessera
