#include "framework/reporting/log_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

namespace tessera::reporting {
namespace {

/// A step as Megatron-LM recorded it: what it used, then what follows.
StepRecord recorded(std::int64_t iteration, double loss, double grad_norm, double next_learning_rate) {
  StepRecord r;
  r.iteration = iteration;
  r.consumed_samples = 8 * iteration;
  r.global_batch_size = 8;
  r.loss = loss;
  r.grad_norm = grad_norm;
  r.next_learning_rate = next_learning_rate;
  r.step_seconds = 0.0603;
  return r;
}

/// 2026-11-21 11:04:57 where the clock shows universal time.
LineContext at_a_known_time() {
  setenv("TZ", "UTC", 1);
  tzset();
  return {10, 1795259097, 0};
}

std::string line_of(const StepRecord& last, const Interval& interval, const LineContext& context) {
  LogLine line;
  add_megatron_line(line, last, interval, context);
  return std::string(line.text());
}

// The lines expected here are Megatron-LM's own, printed by the run that these records were traced in.
TEST(MegatronLine, IsTheOneThatMegatronPrints) {
  auto step = recorded(2, 6.790154457092285, 1.5522311925888062, 0.005);
  step.num_zeros = 0;
  step.params_norm = 32.0536003112793;
  Interval interval;
  interval.add(step);
  EXPECT_EQ(
      line_of(step, interval, at_a_known_time()),
      " [2026-11-21 11:04:57] iteration        2/      10 | consumed samples:           16 | elapsed time per "
      "iteration (ms): 60.3 | learning rate: 5.000000E-03 | global batch size:     8 | lm loss: 6.790154E+00 | "
      "loss scale: 1.0 | grad norm: 1.552 | num zeros: 0.0 | params norm: 32.054 | number of skipped iterations:   "
      "0 | number of nan iterations:   0 |\n");
}

TEST(MegatronLine, HasTheFieldsOfPassedOverSamplesAndOfADecoupledRateWhereMegatronHasThem) {
  auto step = recorded(5, 6.600683212280273, 1.3576838970184326, 0.004828728948150396);
  step.num_zeros = 1;
  step.skipped_samples = 16;
  step.step_seconds = 0.0685;
  Interval interval;
  interval.add(step);
  EXPECT_EQ(
      line_of(step, interval, at_a_known_time()),
      " [2026-11-21 11:04:57] iteration        5/      10 | consumed samples:           40 | skipped samples:        "
      "   16 | elapsed time per iteration (ms): 68.5 | learning rate: 4.828729E-03 | global batch size:     8 | lm "
      "loss: 6.600683E+00 | loss scale: 1.0 | grad norm: 1.358 | num zeros: 1.0 | number of skipped iterations:   0 "
      "| number of nan iterations:   0 |\n");
  step.decoupled_learning_rate = 0.0009623203;
  EXPECT_NE(line_of(step, interval, at_a_known_time())
                .find(" learning rate: 4.828729E-03 | decoupled learning rate: 9.623203E-04 | global batch size:"),
            std::string::npos);
}

TEST(MegatronLine, HasTheLossesOfRoutersAndPredictionsBehindTheLossAsMeans) {
  auto step = recorded(2, 6.680943, 1.45, 0.0048);
  const std::array<double, 2> first = {6.5, 7}, second = {6, 6};
  step.load_balancing_loss = 1.5;
  step.z_loss = 0.25;
  step.prediction_losses = first;
  Interval interval;
  interval.add(step);
  step.load_balancing_loss = 1;
  step.prediction_losses = second;
  interval.add(step);
  EXPECT_NE(line_of(step, interval, at_a_known_time())
                .find(" lm loss: 6.680943E+00 | load_balancing_loss: 1.250000E+00 | z_loss: 2.500000E-01 | mtp_1 loss: "
                      "6.250000E+00 | mtp_2 loss: 6.500000E+00 | loss scale: 1.0 |"),
            std::string::npos)
      << line_of(step, interval, at_a_known_time());
}

TEST(MegatronLine, AveragesLossAndTimeOverTheInterval) {
  Interval interval;
  auto first = recorded(1, 2.0, 1, 0.1), last = recorded(2, 4.0, 3, 0.2);
  first.step_seconds = 0.010;
  last.step_seconds = 0.030;
  interval.add(first);
  interval.add(last);
  const auto line = line_of(last, interval, at_a_known_time());
  EXPECT_NE(line.find(" elapsed time per iteration (ms): 20.0 |"), std::string::npos) << line;
  EXPECT_NE(line.find(" lm loss: 3.000000E+00 |"), std::string::npos) << line;
  EXPECT_NE(line.find(" grad norm: 3.000 |"), std::string::npos) << line;
}

/// The words behind a separator, as awk -F separator '{print$n}' prints them.
std::string field_of(const std::string& line, const std::string& separator, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t i = 1; i < number; ++i) begin = line.find(separator, begin) + separator.size();
  return line.substr(begin, line.find(separator, begin) - begin);
}

// Scripts of MindSpeed-MM take the time as the fifth field between colons, and the tokens behind their name.
TEST(MegatronLine, HasTimeAndTokensPerSampleWhereScriptsLookForThem) {
  Interval interval;
  auto first = recorded(1, 2.0, 1, 0.1), last = recorded(2, 4.0, 3, 0.2);
  first.step_seconds = last.step_seconds = 0.0125;
  first.tokens_per_sample = 100;
  last.tokens_per_sample = 103;
  interval.add(first);
  interval.add(last);
  const auto line = line_of(last, interval, at_a_known_time());
  EXPECT_EQ(std::stod(field_of(field_of(line, ":", 5), "|", 1)), 12.5) << line;
  EXPECT_EQ(std::stod(field_of(field_of(line, "tokens per sample:", 2), "|", 1)), 101.5) << line;
}

TEST(MegatronLine, CountsSkippedStepsAndKeepsThemOutOfTheMean) {
  Interval interval;
  auto good = recorded(1, 2.0, 1, 0.1), skipped = recorded(2, 0, 0, 0.1);
  skipped.skipped = true;
  skipped.loss = std::nan("");
  skipped.loss_scale = 32768;
  interval.add(good);
  interval.add(skipped);
  const auto line = line_of(skipped, interval, at_a_known_time());
  EXPECT_NE(
      line.find(" lm loss: 2.000000E+00 | loss scale: 32768.0 | number of skipped iterations:   1 | number of nan "
                "iterations:   1 |\n"),
      std::string::npos)
      << line;
}

TEST(MegatronLine, LeavesTheLossOutWhenEveryStepWasSkipped) {
  Interval interval;
  auto skipped = recorded(1, 2.0, 0, 0.1);
  skipped.skipped = true;
  interval.add(skipped);
  EXPECT_EQ(line_of(skipped, interval, at_a_known_time()).find("lm loss"), std::string::npos);
}

TEST(MegatronLine, TellsTheThroughputWhenItIsKnown) {
  auto context = at_a_known_time();
  context.tera_flops_per_second = 0.25;
  Interval interval;
  const auto step = recorded(1, 2, 1, 0.1);
  interval.add(step);
  EXPECT_NE(
      line_of(step, interval, context).find(" (ms): 60.3 | throughput per GPU (TFLOP/s/GPU): 0.2 | learning rate:"),
      std::string::npos);
}

TEST(MegatronLine, ZerosReadAsAFloatOfPython) {
  Interval interval;
  auto step = recorded(1, 2, 1, 0.1);
  step.num_zeros = 1234567;
  interval.add(step);
  EXPECT_NE(line_of(step, interval, at_a_known_time()).find(" num zeros: 1234567.0 |"), std::string::npos);
}

TEST(CoreMsLine, IsTheOneOfItsManual) {
  auto step = recorded(13, 12.0177145004272461, 1, 0.1);
  step.step_seconds = 16;
  step.data_wait_seconds = 16 - 15.74281;
  step.step_in_epoch = 13;
  LogLine line;
  add_core_ms_line(line, step);
  EXPECT_EQ(line.text(), "INFO - Epoch: 0, Step: 13, Loss: 12.0177145004272461, Time: 15742.81 ms\n");
}

TEST(CoreMsLine, CountsStepsInsideTheEpoch) {
  auto step = recorded(13, 1, 1, 0.1);
  step.epoch = 2;
  step.step_in_epoch = 3;
  LogLine line;
  add_core_ms_line(line, step);
  EXPECT_EQ(line.text().substr(0, 26), "INFO - Epoch: 2, Step: 3, ");
}

std::string validation(const EvaluationRecord& record) {
  LogLine line;
  add_validation_lines(line, record);
  return std::string(line.text());
}

TEST(ValidationLines, AreThoseThatMegatronPrints) {
  EXPECT_EQ(validation({10, 80, 5.991315841674805}),
            "----------------------------------------------------------------------------------------------\n"
            " validation loss at iteration 10 | lm loss value: 5.991316E+00 | lm loss PPL: 3.999405E+02 | \n"
            "----------------------------------------------------------------------------------------------\n");
  EXPECT_EQ(
      validation({10, 80, 6.003185272216797, EvaluationRecord::Set::test}),
      "----------------------------------------------------------------------------------------------------------\n"
      " validation loss at iteration 10 on test set | lm loss value: 6.003185E+00 | lm loss PPL: 4.047159E+02 | \n"
      "----------------------------------------------------------------------------------------------------------\n");
}

TEST(ValidationLines, NameTheValidationSet) {
  EXPECT_EQ(validation({10, 80, 6.003185272216797, EvaluationRecord::Set::final_validation, "-0"}),
            "----------------------------------------------------------------------------------------------------------"
            "--------\n"
            " validation-0 loss at iteration 10 on validation set | lm loss value: 6.003185E+00 | lm loss PPL: "
            "4.047159E+02 | \n"
            "----------------------------------------------------------------------------------------------------------"
            "--------\n");
}

TEST(ValidationLines, PerplexityIsBounded) {
  EXPECT_DOUBLE_EQ(perplexity(1000), std::exp(20.0));
  EXPECT_DOUBLE_EQ(perplexity(2), std::exp(2.0));
}

TEST(LogLine, CutsOffWhatDoesNotFit) {
  LogLine line;
  for (int i = 0; i < 100; ++i) line.put("{}", std::string(100, 'x'));
  line.add("y");
  line.repeat('z', 5000);
  EXPECT_LE(line.size(), 2048U);
  line.clear();
  EXPECT_EQ(line.text(), "");
}

}  // namespace
}  // namespace tessera::reporting
