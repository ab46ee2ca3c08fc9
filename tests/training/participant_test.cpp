#include "framework/training/loop/participant.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

/// The calls of a run, in order, as "name.call".
using Calls = std::vector<std::string>;

/// A participant that notes each call, and then does what `react` says.
class Noted final : public Participant {
 public:
  Noted(std::string name, Calls& calls) : name_(std::move(name)), calls_(calls) {}
  void begin_iteration() override { note("begin_iteration"); }
  void begin_step() override { note("begin_step"); }
  void computed() override { note("computed"); }
  void completed(const reporting::StepRecord&) override { note("completed"); }
  void end_step() override { note("end_step"); }
  void save() override { note("save"); }
  void stop(bool completed) override { note(completed ? "stop completed" : "stop"); }

  std::function<void(const std::string& call)> react;

 private:
  void note(const std::string& call) {
    calls_.push_back(name_ + "." + call);
    if (react) react(call);
  }
  std::string name_;
  Calls& calls_;
};

/// Steps 1 to `last`, of which some are skipped or not made the first time.
struct NotedSteps final : LoopSteps {
  NotedSteps(Calls& all, Participants& list) : calls(all), participants(list) {}
  bool ended() const override { return done >= last; }
  bool skip() override {
    if (done + 1 != skipped) return false;
    ++done;
    calls.push_back("skip");
    return true;
  }
  bool make() override {
    calls.push_back("make");
    participants.call(&Participant::computed);
    if (done + 1 == refused) return refused = 0, false;
    ++done;
    participants.call(&Participant::completed, reporting::StepRecord());
    return true;
  }
  std::string reason_to_stop() override { return calls.push_back("reason"), done == stopped ? "asked" : ""; }

  Calls& calls;
  Participants& participants;
  int done = 0, last = 1, skipped = 0, refused = 0, stopped = 0;
};

struct Loop : testing::Test {
  Loop() { participants.add({&a, &b}); }
  Calls calls;
  Participants participants;
  Noted a{"a", calls}, b{"b", calls};
  NotedSteps steps{calls, participants};
};

const Calls whole_step = {
    "a.begin_iteration", "b.begin_iteration", "a.begin_step", "b.begin_step", "make",   "a.computed", "b.computed",
    "a.completed",       "b.completed",       "a.end_step",   "b.end_step",   "a.save", "b.save",     "reason"};

TEST_F(Loop, AStepCallsEachParticipantInTheOrderOfTheList) {
  EXPECT_EQ(run_steps(steps, participants, ""), "");
  EXPECT_EQ(calls, whole_step);
}

TEST_F(Loop, ASkippedIterationOnlyBegins) {
  steps.last = 2;
  steps.skipped = 1;
  run_steps(steps, participants, "");
  Calls expected = {"a.begin_iteration", "b.begin_iteration", "skip"};
  expected.insert(expected.end(), whole_step.begin(), whole_step.end());
  EXPECT_EQ(calls, expected);
}

TEST_F(Loop, AStepThatWasNotMadeIsNotEndedOrSavedAndIsMadeAgain) {
  steps.refused = 1;
  run_steps(steps, participants, "");
  Calls expected(whole_step.begin(), whole_step.begin() + 7);
  expected.insert(expected.end(), whole_step.begin(), whole_step.end());
  EXPECT_EQ(calls, expected);
}

TEST_F(Loop, AReasonToStopEndsItAfterTheStepIsSaved) {
  steps.last = 5;
  steps.stopped = 2;
  EXPECT_EQ(run_steps(steps, participants, ""), "asked");
  EXPECT_EQ(steps.done, 2);
  EXPECT_EQ(calls.size(), 2 * whole_step.size());
  EXPECT_EQ(calls.back(), "reason");
}

TEST_F(Loop, AReasonThatIsKnownBeforeMakesNoStep) {
  EXPECT_EQ(run_steps(steps, participants, "known"), "known");
  EXPECT_TRUE(calls.empty());
}

TEST_F(Loop, AnExceptionOfAParticipantEndsItAndLaterOnesAreNotCalled) {
  for (std::size_t i = 0; i < whole_step.size(); ++i) {
    const auto& call = whole_step[i];
    if (call.rfind("a.", 0) != 0) continue;
    calls.clear();
    steps.done = 0;
    a.react = [&](const std::string& now) {
      if ("a." + now == call) throw Error("no memory");
    };
    EXPECT_THROW(run_steps(steps, participants, ""), Error) << call;
    EXPECT_EQ(calls, Calls(whole_step.begin(), whole_step.begin() + static_cast<std::ptrdiff_t>(i) + 1));
  }
}

TEST_F(Loop, ArgumentsReachEveryParticipant) {
  participants.call(&Participant::stop, true);
  participants.call(&Participant::stop, false);
  EXPECT_EQ(calls, (Calls{"a.stop completed", "b.stop completed", "a.stop", "b.stop"}));
}

}  // namespace
}  // namespace tessera::training
