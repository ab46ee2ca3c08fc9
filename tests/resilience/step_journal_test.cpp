#include "framework/resilience/step_journal.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tessera::resilience {
namespace {

constexpr std::size_t record_bytes = 40, position_bytes = 1000;

class StepJournalTest : public testing::Test {
 protected:
  StepJournal journal() { return StepJournal(memory_, record_bytes, position_bytes); }
  std::span<std::byte> memory() { return memory_; }

 private:
  alignas(64) std::byte bytes_[4096] = {};
  std::span<std::byte> memory_ = std::span(bytes_).first(StepJournal::bytes(record_bytes, position_bytes));
};

std::vector<std::byte> record(int value) { return std::vector<std::byte>(record_bytes, static_cast<std::byte>(value)); }

TEST_F(StepJournalTest, ALaterProcessFindsWhatWasWritten) {
  auto first = journal();
  EXPECT_EQ(first.position(), "");
  first.commit(6, "six");
  first.prepare(7);
  first.intend(7, record(7));
  const auto later = journal();
  EXPECT_EQ(later.state().committed, 6);
  EXPECT_EQ(later.state().intended, 7);
  EXPECT_EQ(later.state().prepared, 7);
  EXPECT_EQ(later.position(), "six");
  EXPECT_EQ(std::memcmp(later.record().data(), record(7).data(), record_bytes), 0);
}

TEST_F(StepJournalTest, APreparedStepIsIntendedOnlyAfterTheOperationOfAllRanks) {
  auto one = journal();
  one.commit(6, "six");
  one.intend(6, record(6));
  one.prepare(7);
  EXPECT_EQ(one.state().prepared, 7);
  EXPECT_EQ(one.state().intended, 6) << "one rank that intends a step proves that all have prepared it";
}

TEST_F(StepJournalTest, IsReadWithoutKnowingItsSizes) {
  EXPECT_FALSE(StepJournal::read_state(memory())) << "nothing was written";
  auto one = journal();
  one.commit(6, "six");
  one.intend(7, record(7));
  const auto read = StepJournal::read_state(memory());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->committed, 6);
  EXPECT_EQ(read->intended, 7);
  EXPECT_FALSE(StepJournal::read_state(memory().first(memory().size() - 1))) << "it would be longer than the file";
}

TEST_F(StepJournalTest, APositionMayBeReplacedAfterTheSameStep) {
  auto one = journal();
  one.commit(6, "six");
  one.commit(6, std::string(position_bytes, 'x'));
  EXPECT_EQ(one.state().committed, 6);
  EXPECT_EQ(one.position(), std::string(position_bytes, 'x'));
  EXPECT_THROW(one.commit(7, std::string(position_bytes + 1, 'x')), BugError);
}

/// A kill leaves a prefix of the stores. Whatever byte of the newer position is not yet written, the one before it
/// counts.
TEST_F(StepJournalTest, AnIncompletePositionLeavesTheOneBefore) {
  auto one = journal();
  one.commit(6, "six");
  std::vector<std::byte> before(memory().begin(), memory().end());
  one.commit(7, "seven and more");
  std::vector<std::byte> after(memory().begin(), memory().end());
  int changed = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (before[i] == after[i]) continue;
    ++changed;
    memory()[i] = before[i];
    EXPECT_EQ(journal().state().committed, 6) << "byte " << i;
    EXPECT_EQ(journal().position(), "six") << "byte " << i;
    memory()[i] = after[i];
  }
  EXPECT_GT(changed, 14);
  EXPECT_EQ(journal().position(), "seven and more");
}

/// Without a word of all ranks, only the position before the newest is one that all have come to.
TEST_F(StepJournalTest, ThePositionThatAllRanksHaveComeToIsKnown) {
  auto one = journal();
  EXPECT_EQ(one.state().told, -1);
  one.commit(6, "six");
  EXPECT_EQ(one.state().told, -1);
  EXPECT_EQ(one.told_position(), "six") << "there is no other";
  one.confirm();
  EXPECT_EQ(one.state().told, 6);
  one.commit(7, "seven");
  EXPECT_EQ(one.state().told, 6);
  EXPECT_EQ(one.told_position(), "six");
  EXPECT_EQ(one.position(), "seven");
  one.commit(7, "seven, evaluated");
  EXPECT_EQ(one.state().told, 7);
  EXPECT_EQ(one.told_position(), "seven");
  one.confirm();
  EXPECT_EQ(journal().told_position(), "seven, evaluated");
}

TEST_F(StepJournalTest, AWithdrawnStateKeepsOnlyItsPosition) {
  auto one = journal();
  one.commit(6, "six");
  one.prepare(7);
  one.withdraw("keep this");
  EXPECT_TRUE(journal().state().withdrawn);
  EXPECT_EQ(journal().position(), "keep this");
  one.restart(3, "three");
  const auto later = journal().state();
  EXPECT_FALSE(later.withdrawn);
  EXPECT_EQ(later.committed, 3);
  EXPECT_EQ(later.intended, 0);
  EXPECT_EQ(later.prepared, 0);
  EXPECT_EQ(later.told, 3) << "all ranks have loaded the checkpoint";
  EXPECT_EQ(journal().told_position(), "three");
  one.commit(4, "four");
  EXPECT_EQ(journal().state().told, 3);
}

/// Wherever it ends, it is before the withdrawal, or withdrawn with what is kept, or at the checkpoint.
TEST_F(StepJournalTest, AnIncompleteWithdrawalOrRestartIsNone) {
  auto one = journal();
  one.intend(6, record(6));
  one.commit(6, "six");
  const auto all = [&] { return std::vector<std::byte>(memory().begin(), memory().end()); };
  const auto check = [&](const std::vector<std::byte>& before, std::int64_t step, bool withdrawn,
                         const char* position) {
    const auto after = all();
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (before[i] == after[i]) continue;
      memory()[i] = before[i];
      const auto state = journal().state();
      const bool is_before =
          state.committed == step && state.withdrawn == withdrawn && journal().position() == position;
      const bool is_after =
          i < 64 && state.committed == 3 && !state.withdrawn;  // intended and prepared are cleared first
      EXPECT_TRUE(is_before || is_after) << "byte " << i;
      memory()[i] = after[i];
    }
  };
  auto before = all();
  one.withdraw("keep this");
  check(before, 6, false, "six");
  before = all();
  one.restart(3, "three");
  check(before, 6, true, "keep this");
}

}  // namespace
}  // namespace tessera::resilience
