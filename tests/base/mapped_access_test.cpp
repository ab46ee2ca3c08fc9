#include "framework/base/mapped_access.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "framework/base/files.h"
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

TEST_F(MappedAccess, OutsideOfItTheSignalEndsTheProcess) {
  // AddressSanitizer handles the signal: it reports the place and ends the process with an exit code.
  const auto ended = [](int status) {
    return sanitized ? !WIFEXITED(status) || WEXITSTATUS(status) != 0
                     : WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
  };
  write("file", std::string(8192, '\1'));
  const MappedFile file("file");
  ASSERT_TRUE(access_mapped([] {}));
  std::filesystem::resize_file("file", 0);
  EXPECT_EXIT(std::exit(sum_of(file.bytes()) < 0 ? 1 : 0), ended, "");
  EXPECT_EXIT(access_mapped([] { raise(SIGBUS); }), ended, "");
}

}  // namespace
}  // namespace tessera
