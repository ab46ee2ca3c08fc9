#include "framework/base/trace.h"

#include <gtest/gtest.h>

#include <thread>
#include <typeinfo>

#include "framework/base/error.h"

namespace tessera {
namespace {

struct Outer {
  template <class T>
  static const char* lambda_in_a_template(const T&, int) {
    const auto body = [](std::size_t, std::size_t) {};
    return typeid(body).name();
  }
};

[[maybe_unused]] const char* lambda_in_a_function(const std::string&) {
  const auto body = [](std::size_t, std::size_t) {};
  return typeid(body).name();
}

TEST(Trace, NamesOfLambdasAreThoseOfTheirFunctions) {
#ifndef __clang__  // which numbers the lambdas of functions that are neither inline nor templates
  EXPECT_EQ(readable_trace_name(lambda_in_a_function("")), "lambda_in_a_function");
#endif
  EXPECT_EQ(readable_trace_name(Outer::lambda_in_a_template(std::vector<int>(), 1)), "lambda_in_a_template");
  EXPECT_EQ(readable_trace_name(typeid(Outer).name()), "Outer");
  EXPECT_EQ(readable_trace_name(typeid(std::vector<Outer>).name()), "vector");
  EXPECT_EQ(readable_trace_name("decoder.layers.3.mlp"), "decoder.layers.3.mlp");
}

TEST(Trace, KeepsSpansOfItsKindsWhileItIsActive) {
  Trace trace({TraceKind::phase, TraceKind::communication}, 100);
  { const TraceSpan before(TraceKind::phase, "before"); }
  trace.start();
  {
    const TraceSpan outer(TraceKind::phase, "outer", 7);
    const TraceSpan other(TraceKind::kernel, "of another kind");
    const TraceSpan inner(std::string("all_") + "reduce", "data", "a test", 4096);
    trace_counter(TraceKind::counter, "of another kind", 1);
  }
  {
    TraceSpan dropped(TraceKind::phase, "dropped");
    dropped.drop();
  }
  trace.stop();
  { const TraceSpan after(TraceKind::phase, "after"); }

  const auto tracks = trace.tracks();
  ASSERT_EQ(tracks.size(), 1U);
  const auto& track = *tracks[0];
  ASSERT_EQ(track.size(), 2U);
  EXPECT_STREQ(track[0].name, "all_reduce");
  EXPECT_STREQ(track[0].group, "data");
  EXPECT_STREQ(track[0].who, "a test");
  EXPECT_EQ(track[0].value, 4096);
  EXPECT_STREQ(track[1].name, "outer");
  EXPECT_EQ(track[1].value, 7);
  EXPECT_LE(track[1].begin, track[0].begin);
  EXPECT_LE(track[0].begin, track[0].end);
  EXPECT_LE(track[0].end, track[1].end);
}

TEST(Trace, WhatDoesNotFitIsCounted) {
  Trace trace({TraceKind::phase}, 3);
  trace.start();
  for (int i = 0; i < 5; ++i) const TraceSpan span(TraceKind::phase, "one");
  trace.stop();
  EXPECT_EQ(trace.tracks()[0]->size(), 3U);
  EXPECT_EQ(trace.tracks()[0]->dropped(), 2);
}

TEST(Trace, EveryThreadHasATrackOfEachTrace) {
  for (int round = 0; round < 2; ++round) {  // the second trace finds threads that had a track of the first
    Trace trace({TraceKind::phase}, 1000);
    trace.start();
    { const TraceSpan span(TraceKind::phase, "here"); }
    std::thread other([] {
      for (int i = 0; i < 100; ++i) const TraceSpan span(TraceKind::phase, "there");
    });
    other.join();
    trace.stop();
    ASSERT_EQ(trace.tracks().size(), 2U);
    EXPECT_EQ(trace.tracks()[0]->size(), 1U);
    EXPECT_EQ(trace.tracks()[1]->size(), 100U);
  }
}

TEST(Trace, OneIsActiveAtATime) {
  Trace first({TraceKind::phase}, 1), second({TraceKind::phase}, 1);
  first.start();
  EXPECT_THROW(second.start(), BugError);
  first.stop();
  second.start();
  EXPECT_EQ(Trace::active(TraceKind::phase), &second);
  EXPECT_EQ(Trace::active(TraceKind::kernel), nullptr);
}

}  // namespace
}  // namespace tessera
