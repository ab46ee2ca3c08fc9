#include "framework/base/files.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using FilesTest = InOwnFolder;

TEST_F(FilesTest, AFileWrittenAtOnceReplacesTheOldAndLeavesNothingBeside) {
  write_file_atomic("note.txt", "old");
  write_file_atomic("note.txt", std::string("new\0bytes", 9));
  EXPECT_EQ(read_file("note.txt"), std::string("new\0bytes", 9));
  EXPECT_EQ(list_folder("."), std::vector<fs::path>{"./note.txt"});
}

TEST_F(FilesTest, AFailedReplacementKeepsTheOldContent) {
  fs::create_directory("taken");
  write("taken/inside", "stays");
  EXPECT_THROW(write_file_atomic("taken", "new"), IoError);
  EXPECT_EQ(read_file("taken/inside"), "stays");
  EXPECT_EQ(list_folder(".").size(), 1U);
}

TEST_F(FilesTest, ErrorsNameTheFileAndTheReason) {
  EXPECT_EQ(story_of([] { read_file("absent"); }), "absent: cannot be opened: No such file or directory");
  EXPECT_NE(story_of([] { File::create("no_folder/x"); }).find("no_folder/x: cannot be written"), std::string::npos);
  fs::create_directory("folder");
  EXPECT_NE(story_of([] { read_file("folder"); }).find("folder: cannot be read: Is a directory"), std::string::npos);
}

TEST_F(FilesTest, AFullDiskIsAnErrorAndNotSilence) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  auto file = File::create("/dev/full");
  EXPECT_NE(story_of([&] { file.write("x"); }).find("No space left on device"), std::string::npos);
}

TEST_F(FilesTest, ReadingBeyondTheEndSaysHowMuchIsMissing) {
  write("short", "12345");
  const auto file = File::open("short");
  std::array<std::byte, 4> into{};
  file.read_at(1, into);
  EXPECT_EQ(into[0], std::byte{'2'});
  EXPECT_EQ(story_of([&] { file.read_at(3, into); }), "short: ends at byte 5; 2 more were promised");
}

TEST_F(FilesTest, AMappedFileShowsTheBytesAndAnEmptyOneNone) {
  write("some", "abc");
  write("none", "");
  const MappedFile some("some");
  EXPECT_EQ(some.bytes().size(), 3U);
  EXPECT_EQ(some.bytes()[2], std::byte{'c'});
  EXPECT_TRUE(MappedFile("none").bytes().empty());
  EXPECT_THROW(MappedFile("absent"), IoError);
}

TEST_F(FilesTest, ListingIsSortedAndAnAbsentFolderIsEmpty) {
  for (const char* name : {"b", "a", "c"}) write(name, "");
  EXPECT_EQ(list_folder("."), (std::vector<fs::path>{"./a", "./b", "./c"}));
  EXPECT_TRUE(list_folder("absent").empty());
}

TEST_F(FilesTest, TheSecondProcessOnAFolderIsToldWhoHoldsIt) {
  const auto story = [] {
    const FolderLock first(".");
    return story_of([] { FolderLock second("."); });
  }();
  EXPECT_NE(story.find(text("is in use by process ", ::getpid(), " on ")), std::string::npos) << story;
  FolderLock again(".");  // the first let go
}

TEST_F(FilesTest, AKilledProcessLetsGoOfItsFolder) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FolderLock lock(".");
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(story_of([] { FolderLock mine("."); }).find(text("process ", child)), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(FolderLock("."));
}

TEST_F(FilesTest, AFolderThatCannotBeWrittenCannotBeLocked) {
  EXPECT_NE(story_of([] { FolderLock lock("absent"); }).find("absent/in_use: cannot be written"), std::string::npos);
}

}  // namespace
}  // namespace tessera
