#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "framework/reporting/progress_bar.h"

namespace tessera::reporting {
namespace {

std::string bar(const ProgressState& state, int columns) {
  LogLine line;
  add_bar(line, state, columns);
  return std::string(line.text());
}

ProgressState halfway() { return {120, 240, 3.21456, 3e-4, 12345, 252, 85.1e9, 0.61}; }

TEST(Bar, TellsEverythingWhereThereIsRoom) {
  EXPECT_EQ(
      bar(halfway(), 140),
      " 50% [===============>              ] 120/240  loss 3.215  lr 3.00e-04  12.3k tok/s  4:12 left  85.1GFLOP/s "
      "(61% of GEMM)");
}

TEST(Bar, GivesUpTheLessImportantFirstAndNeverWraps) {
  std::size_t before = 1000;
  for (int columns = 160; columns >= 0; --columns) {
    const auto text = bar(halfway(), columns);
    EXPECT_LE(text.size(), static_cast<std::size_t>(columns));
    EXPECT_LE(text.size(), before);
    before = text.size() == 0 ? before : std::max(text.size(), before);
    EXPECT_EQ(text.find("loss 3.215") == std::string::npos, columns < 16) << columns;
    EXPECT_EQ(text.find("4:12 left") == std::string::npos, columns < 27) << columns;
  }
  EXPECT_EQ(bar(halfway(), 10), " 50%");
  EXPECT_EQ(bar(halfway(), 3), "");
}

TEST(Bar, IsFullAtTheEnd) {
  auto state = halfway();
  state.iteration = 240;
  EXPECT_EQ(bar(state, 140).substr(0, 38), "100% [==============================] ");
}

TEST(Bar, OfAnEvaluationCountsAndTellsTheTimeLeft) {
  const auto told = [](const EvaluationState& state, int columns) {
    LogLine line;
    add_evaluation(line, state, columns);
    return std::string(line.text());
  };
  const EvaluationState third{"validation split", 34, 100, 252};
  EXPECT_EQ(told(third, 80), " 34% evaluating the validation split 34/100  4:12 left");
  EXPECT_EQ(told(third, 50), " 34% evaluating the validation split 34/100");
  EXPECT_EQ(told(third, 20), " 34%");
  EXPECT_EQ(told({"test split", 0, 100, -1}, 80), "  0% evaluating the test split 0/100");
}

std::string duration(double seconds) {
  LogLine line;
  add_duration(line, seconds);
  return std::string(line.text());
}

TEST(Duration, ReadsAsAClockDoes) {
  EXPECT_EQ(duration(0.4), "0:00");
  EXPECT_EQ(duration(252), "4:12");
  EXPECT_EQ(duration(3753), "1:02:33");
  EXPECT_EQ(duration(2 * 86400 + 3 * 3600 + 4 * 60), "2d 03:04");
}

std::string scaled(double value) {
  LogLine line;
  add_scaled(line, value);
  return std::string(line.text());
}

TEST(Scaled, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(scaled(7), "7");
  EXPECT_EQ(scaled(999), "999");
  EXPECT_EQ(scaled(999.6), "1.00k");
  EXPECT_EQ(scaled(12345), "12.3k");
  EXPECT_EQ(scaled(1.05e6), "1.05M");
  EXPECT_EQ(scaled(123.4e12), "123T");
}

/// A terminal of the test's own: what is written to `screen` is read from the other end.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : keeper_(posix_openpt(O_RDWR | O_NOCTTY)) {
    grantpt(keeper_);
    unlockpt(keeper_);
    screen_ = open(ptsname(keeper_), O_RDWR | O_NOCTTY);
    resize(columns);
    fcntl(keeper_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    close(screen_);
    close(keeper_);
  }
  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    ioctl(screen_, TIOCSWINSZ, &size);
  }
  std::string shown() const {
    std::string all;
    char some[4096];
    for (ssize_t count = 0; (count = ::read(keeper_, some, sizeof some)) > 0;)
      all.append(some, static_cast<std::size_t>(count));
    return all;
  }
  int screen() const { return screen_; }

 private:
  int keeper_, screen_ = -1;
};

StepRecord step(std::int64_t iteration) {
  StepRecord r;
  r.iteration = iteration;
  r.loss = 2;
  r.step_seconds = 0.5;
  r.tokens_per_second = 1000;
  return r;
}

TEST(ProgressBar, GivesItsLineToAnEvaluation) {
  const Terminal terminal(200);
  ProgressBar progress({terminal.screen(), 10, 0});
  progress.step(step(1));
  terminal.shown();
  progress.begin_evaluation("test split", 4, 65);
  EXPECT_NE(terminal.shown().find("  0% evaluating the test split 0/4  1:05 left"), std::string::npos);
  progress.evaluation(4);
  EXPECT_NE(terminal.shown().find("100% evaluating the test split 4/4  0:00 left"), std::string::npos);
  progress.end_evaluation();
  progress.draw();
  EXPECT_NE(terminal.shown().find(" 1/10"), std::string::npos);
}

TEST(ProgressBar, SuitsATerminalAndNothingElse) {
  const Terminal terminal(80);
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(log::StatusLine::suits(terminal.screen()));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(log::StatusLine::suits(terminal.screen()));
  setenv("TERM", "xterm", 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(log::StatusLine::suits(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(ProgressBar, DrawsAtMostTenTimesASecondAndAlwaysTheLastStep) {
  const Terminal terminal(200);
  ProgressBar progress({terminal.screen(), 1000, 4e9});
  const auto with_flops = [](int number) {
    auto record = step(number);
    record.flops = 1e9;
    return record;
  };
  for (int i = 1; i <= 999; ++i) progress.step(with_flops(i));
  const auto first = terminal.shown();
  EXPECT_NE(first.find(" 1/1000"), std::string::npos);
  EXPECT_EQ(first.find(" 2/1000"), std::string::npos);  // 999 steps take far less than a tenth of a second
  progress.step(with_flops(1000));
  const auto last = terminal.shown();
  EXPECT_NE(last.find(" 1000/1000"), std::string::npos);
  EXPECT_NE(last.find("2.00GFLOP/s (50% of GEMM)"), std::string::npos) << last;
}

TEST(ProgressBar, MakesRoomForOtherTextAndComesBack) {
  const Terminal terminal(80);
  ProgressBar progress({terminal.screen(), 10, 0});
  progress.hide();
  EXPECT_EQ(terminal.shown(), "");
  progress.step(step(1));
  terminal.shown();
  progress.hide();
  EXPECT_EQ(terminal.shown(), "\r\033[J");
  progress.draw();
  EXPECT_NE(terminal.shown().find(" 1/10"), std::string::npos);
}

TEST(ProgressBar, ClearsTheRowsThatANarrowerTerminalMadeOfIt) {
  const Terminal terminal(100);
  ProgressBar progress({terminal.screen(), 10, 0});
  progress.step(step(1));
  EXPECT_GT(terminal.shown().size(), 60U);
  terminal.resize(30);
  progress.draw();
  const auto shown = terminal.shown();
  EXPECT_EQ(shown.substr(0, 7), "\033[2A\r\033[");
  EXPECT_LE(shown.size() - shown.find("[J") - 2, 29U);
}

TEST(ProgressBar, LeavesItsLastStateOnALineOfItsOwn) {
  const Terminal terminal(80);
  {
    ProgressBar progress({terminal.screen(), 10, 0});
    progress.step(step(3));
  }
  const auto shown = terminal.shown();
  EXPECT_EQ(shown.substr(shown.size() - 2), "\r\n");
}

}  // namespace
}  // namespace tessera::reporting
