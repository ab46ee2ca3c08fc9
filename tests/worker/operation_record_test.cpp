#include "framework/worker/operation_record.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::worker {
namespace {

class OperationRecords : public InOwnFolder {};

TEST_F(OperationRecords, ShowsOthersWhatAProcessDoesAndDid) {
  OperationRecord writer = OperationRecord::create("rank_3", 3);
  const auto reader = OperationRecord::open("rank_3");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->rank(), 3);
  EXPECT_EQ(reader->pid(), ::getpid());
  EXPECT_TRUE(reader->read().empty());
  writer.enter("tensor", "all_reduce", 17, 4096, "linear_fc2 of layer 3");
  auto entries = reader->read();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(entries[0].inside());
  EXPECT_EQ(entries[0].sequence, 17U);
  EXPECT_TRUE(says(describe(entries[0], entries[0].entered + 12.5),
                   "in all_reduce 17 of group tensor, 4096 bytes, called by 'linear_fc2 of layer 3', for 12.5 s"));
  writer.leave();
  entries = reader->read();
  ASSERT_FALSE(entries[0].inside());
  EXPECT_TRUE(says(describe(entries[0], *entries[0].left + 2), "its last was all_reduce 17 of group tensor"));
  EXPECT_TRUE(says(describe(entries[0], *entries[0].left + 2), "left 2.0 s ago"));
}

TEST_F(OperationRecords, KeepsTheNewestEightTheNewestFirst) {
  OperationRecord record = OperationRecord::create(0);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    record.enter("g", "barrier", i, 0, std::string(1000, 'x'));
    record.leave();
  }
  const auto entries = record.read();
  ASSERT_EQ(entries.size(), 8U);
  EXPECT_EQ(entries.front().sequence, 20U);
  EXPECT_EQ(entries.back().sequence, 13U);
  EXPECT_EQ(entries.front().who, std::string(135, 'x'));
}

TEST_F(OperationRecords, AReaderNeverTakesHalfAnEntry) {
  OperationRecord record = OperationRecord::create(0);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 5000; ++i) {
      record.enter("g", text("op", i), i, i, std::string(i % 130, 'x'));
      record.leave();
    }
    done = true;
  });
  std::size_t read = 0;
  bool whole = true;
  for (bool last = false; !last;) {
    last = done;
    for (const auto& entry : record.read()) {
      ++read;
      whole = whole && entry.operation == text("op", entry.sequence) && entry.bytes == entry.sequence &&
              entry.who.size() == entry.sequence % 130;
    }
  }
  writer.join();
  EXPECT_TRUE(whole);
  EXPECT_GE(read, 8U);
}

TEST_F(OperationRecords, OutlivesItsWriterInAFileAndNothingIsLeftOfAnUnnamedOne) {
  const pid_t child = ::fork();
  if (child == 0) {
    OperationRecord record = OperationRecord::create("r", 1);
    record.enter("data", "all_gather", 5, 8, "x");
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const auto reader = OperationRecord::open("r");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->pid(), child);
  EXPECT_TRUE(reader->read().at(0).inside());

  std::optional<OperationRecord> unnamed = OperationRecord::create(2);
  const auto path = unnamed->descriptor_path();
  EXPECT_EQ(OperationRecord::open(path)->rank(), 2);
  unnamed.reset();
  EXPECT_FALSE(OperationRecord::open(path));
}

TEST_F(OperationRecords, WhatIsNoRecordIsNotRead) {
  EXPECT_FALSE(OperationRecord::open("none"));
  EXPECT_FALSE(OperationRecord::open("/proc/self/exe"));
  EXPECT_TRUE(says(story_of([&] { OperationRecord::create("no/folder", 0); }), "no/folder"));
}

}  // namespace
}  // namespace tessera::worker
