#include "framework/base/files.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/file_calls.h"
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

TEST_F(FilesTest, AReplacementIsStoredBeforeItHasTheNameAndItsNameIsStoredAfter) {
  write("note.txt", "old");
  FileCalls calls(".");
  int renames = 0;
  calls.before_rename = [&](const fs::path& from, const fs::path& to) {
    ++renames;
    EXPECT_EQ(to.filename(), "note.txt");
    EXPECT_EQ(calls.lost_by_crash(from, true), std::vector<std::string>{});
    EXPECT_EQ(read_file(from), "new");
  };
  write_file_atomic("note.txt", "new");
  EXPECT_EQ(renames, 1);
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{});
}

TEST_F(FilesTest, AReplacementThatCannotBeStoredLeavesTheOldContent) {
  write("note.txt", "old");
  FileCalls calls(".");
  calls.sync_fails = [](const fs::path& path) { return path.filename() != "note.txt" && !fs::is_directory(path); };
  EXPECT_EQ(story_of([] { write_file_atomic("note.txt", "new"); }),
            "note.txt_tmp: cannot be brought to the disk: Input/output error");
  EXPECT_EQ(read_file("note.txt"), "old");
  EXPECT_EQ(list_folder(".").size(), 1U);
}

TEST_F(FilesTest, AFileThatHasNoRoomIsRefusedBeforeItIsWrittenAlsoInMemory) {
  const fs::path in_memory = text("/dev/shm/tessera_files_test_", ::getpid());
  for (const fs::path& path : {fs::path("too_large"), in_memory}) {
    if (!fs::is_directory(path.has_parent_path() ? path.parent_path() : ".")) continue;
    auto file = File::create(path);
    file.reserve(std::uint64_t{1} << 20);
    EXPECT_THROW(file.reserve(std::uint64_t{1} << 59), IoError) << path;
    EXPECT_EQ(fs::remove(path), true);
  }
}

TEST_F(FilesTest, WhatIsWrittenIsStoredBySyncAndItsNameByTheFolders) {
  FileCalls calls(".");
  auto file = File::create("note.txt");
  file.write("text");
  sync_folder(".");
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{"note.txt"});  // its name, but no byte of it
  file.sync();
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{});
  rename_or_exchange("note.txt", "other.txt");
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{"other.txt"});
  sync_folder("");  // this one
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{});
}

TEST_F(FilesTest, AFolderThatIsMadeIsStoredWithThoseAboveIt) {
  fs::create_directory("there");
  FileCalls calls(".");
  make_folder("there/a/b/c");
  make_folder("there/a/b/c");
  EXPECT_TRUE(fs::is_directory("there/a/b/c"));
  EXPECT_EQ(calls.lost_by_crash("."), std::vector<std::string>{});
}

TEST_F(FilesTest, AFailedReplacementKeepsTheOldContent) {
  fs::create_directory("taken");
  write("taken/inside", "stays");
  EXPECT_THROW(write_file_atomic("taken", "new"), IoError);
  EXPECT_EQ(read_file("taken/inside"), "stays");
  EXPECT_EQ(list_folder(".").size(), 1U);
}

TEST_F(FilesTest, WritingReachesNothingBehindALink) {
  write("outside", "stays");
  fs::create_symlink("outside", "link");
  fs::create_symlink("outside", "replaced");
  fs::create_symlink("outside", "replaced_tmp");
  fs::create_hard_link("outside", "hard");
  fs::create_symlink("absent", "dangling");
  for (const auto* name : {"link", "hard", "dangling"}) File::create(name).write("new");
  write_file_atomic("replaced", "new");
  EXPECT_EQ(read_file("outside"), "stays");
  EXPECT_FALSE(fs::exists("absent"));
  for (const auto* name : {"link", "hard", "dangling", "replaced"}) {
    EXPECT_EQ(read_file(name), "new") << name;
    EXPECT_FALSE(fs::is_symlink(name)) << name;
  }
  fs::create_symlink("outside", "in_use");
  EXPECT_THROW(FolderLock("."), IoError);
  EXPECT_EQ(read_file("outside"), "stays");
}

TEST_F(FilesTest, ADeviceOrPipeIsNotReplacedByAFile) {
  ASSERT_EQ(mkfifo("pipe", 0600), 0);
  EXPECT_NE(story_of([] { write_file_atomic("pipe", "x"); }).find("pipe: cannot be replaced: is a device or pipe"),
            std::string::npos);
  EXPECT_TRUE(fs::is_fifo("pipe"));
}

TEST_F(FilesTest, AnOutputGoesThroughALinkAndIntoADevice) {
  write_output("plain", "one");
  fs::create_symlink("plain", "link");
  write_output("link", "two");
  EXPECT_TRUE(fs::is_symlink("link"));
  EXPECT_EQ(read_file("plain"), "two");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fs::create_symlink("/proc/self/fd/" + std::to_string(ends[1]), "stdout");
  write_output("stdout", "three");
  EXPECT_TRUE(fs::is_symlink("stdout"));
  char words[8] = {};
  EXPECT_EQ(::read(ends[0], words, sizeof words), 5);
  EXPECT_STREQ(words, "three");
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(name_of_folder("a/run/"), "run");
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
  EXPECT_EQ(story_of([&] { file.read_at(3, into); }), "short: ends at byte 5; expected 2 more bytes");
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

TEST_F(FilesTest, AnOutputThatIsAnInputIsRefusedHoweverItIsWritten) {
  using Paths = std::vector<fs::path>;
  fs::create_directory("folder");
  write("folder/input", "stays");
  write("other", "is another file");
  fs::create_symlink("folder/input", "link");
  fs::create_hard_link("folder/input", "hard");
  fs::create_directory_symlink("folder", "way");
  write("temporary_tmp", "under this name `temporary` is written first");
  const Paths inputs = {"folder/input", "temporary_tmp", "absent"};
  for (const auto* output : {"folder/input", "./folder/../folder/input", "link", "hard", "way/input", "folder", ".",
                             "temporary", "temporary_tmp"})
    EXPECT_THROW(refuse_overwriting(inputs, Paths{"new", output}), ConfigError) << output;
  EXPECT_NO_THROW(refuse_overwriting(inputs, Paths{"other", "folder/new", "absent", "new"}));
  EXPECT_THROW(refuse_overwriting(inputs, Paths{"new", "./folder/../new"}), ConfigError);
}

}  // namespace
}  // namespace tessera
