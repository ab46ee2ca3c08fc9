// Messages between the processes of tsrun: what is parsed, and what is refused.
#include "launch/tsrun/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "framework/base/files.h"

namespace tessera {
namespace {

/// One valid line of each kind, by kind: the files that the fuzzer begins with.
std::map<std::string, std::string> examples() {
  std::map<std::string, std::string> all;
  for (const auto& path : list_folder(TESTS_DATA "/fuzz/message"))
    if (path.extension() == ".json") all.emplace(path.stem(), read_file(path));
  return all;
}

template <class... Message>
std::set<std::string> kinds(const std::variant<Message...>*) {
  return {Message::kind...};
}

template <class Any>
std::string refusal(const std::string& line) {
  std::string why;
  return tsrun::parse<Any>(line, why) ? "" : why;
}

TEST(Messages, EveryKindHasAnExampleThatIsWrittenAsItWasRead) {
  std::set<std::string> found;
  for (const auto& [kind, line] : examples()) {
    std::string why;
    const auto message = tsrun::parse<tsrun::AnyMessage>(line, why);
    ASSERT_TRUE(message) << kind << ": " << why;
    const auto again = std::visit([](const auto& m) { return tsrun::encode(m); }, *message);
    const auto twice = tsrun::parse<tsrun::AnyMessage>(again, why);
    ASSERT_TRUE(twice) << again << ": " << why;
    EXPECT_EQ(std::visit([](const auto& m) { return tsrun::encode(m); }, *twice), again);
    EXPECT_EQ(std::count(again.begin(), again.end(), ':'), std::count(line.begin(), line.end(), ':')) << again;
    found.insert(kind);
  }
  EXPECT_EQ(found, kinds(static_cast<const tsrun::AnyMessage*>(nullptr)));
}

TEST(Messages, WhatIsWrongIsNamed) {
  for (const auto& [line, reason] : std::map<std::string, std::string>{
           {R"({"is":"signal"})", "'signal' is not there"},
           {R"({"is":"signal","signal":"15"})", "'signal' is not a whole number"},
           {R"({"is":"signal","signal":9})", "'signal' is not a signal that is passed on"},
           {R"({"is":"signal","signal":15.5})", "whole number"},
           {R"({"is":"signal","signal":18446744073709551615})", "whole number"},
           {R"({"is":"signal","signal":-9223372036854775808})", "whole number"},
           {R"({"is":"signal","signal":1e999})", "not a message of tsrun"},
           {R"({"is":"signal","signal":NaN})", "not a message of tsrun"},
           {R"({"is":"signal","signal":15,"more":1})", "has entries that are no fields"},
           {R"({"is":"host"})", "'info' is not there"},
           {R"({"is":"host","info":[],"called":""})", "'info' is not an object"},
           {R"({"is":"worker","attempt":0,"rank":-1,"host":"b"})", "'rank' is not a whole number from 0"},
           {R"({"is":"proof","proof":"0123"})", "'proof' is not a string of 64 hexadecimal digits"},
           {R"({"is":"welcome","id":"../..","alias":"","first_rank":0,"workers":1})", "'id' is not"},
           {R"({"is":"heartbeat","place":"a\u0000b"})", "'place' is not a string"},
           {R"({"is":"failed","words":{}})", "'words' is not a string"},
           {R"({"is":"tried","failed":[1]})", "'failed' is not a string"},
           {R"({"is":"shout"})", "a message 'shout', which is not expected here"},
           {"{\"is\":\"a\\u001b[2J\"}", "with an invalid name"},
           {R"({"is":7})", "not a message of tsrun"},
           {R"([])", "not a message of tsrun"},
           {"", "not a message of tsrun"},
           {"\xff\xfe", "not a message of tsrun"},
           {std::string(100000, '['), "nests too deeply"}}) {
    EXPECT_NE(refusal<tsrun::AnyMessage>(line).find(reason), std::string::npos)
        << line << ": " << refusal<tsrun::AnyMessage>(line);
  }
}

TEST(Messages, NoStrangerMaySendWhatHostsAndWorkersSend) {
  const auto all = examples();
  for (const auto& [kind, line] : all) {
    const bool stranger = std::set<std::string>{"hello", "proof"}.count(kind) != 0;
    const bool newcomer = std::set<std::string>{"host", "listening"}.count(kind) != 0;
    const bool client = std::set<std::string>{"host", "listening", "agent", "worker"}.count(kind) != 0;
    EXPECT_EQ(refusal<tsrun::UnauthenticatedMessage>(line).empty(), stranger) << kind;
    EXPECT_EQ(refusal<tsrun::RendezvousMessage>(line).empty(), newcomer) << kind;
    EXPECT_EQ(refusal<tsrun::PendingMessage>(line).empty(), client) << kind;
  }
}

TEST(Messages, TextThatIsNoJsonIsStillWritten) {
  tsrun::EndedMessage message;
  message.end.rank = 0;
  message.end.last_lines = {std::string("a\0b", 3), "\xff", "tab\t"};
  std::string why;
  const auto again = tsrun::parse<tsrun::FromWorkerMessage>(tsrun::encode(message), why);
  ASSERT_TRUE(again) << why;
  EXPECT_EQ(std::get<tsrun::EndedMessage>(*again).end.last_lines,
            (std::vector<std::string>{"a b", "\xef\xbf\xbd", "tab\t"}));
}

/// Any line at all gives a message whose limits hold, or a reason.
TEST(Messages, ChangedAtRandomTheyAreParsedOrRefused) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const auto all = examples();
  std::vector<std::string> lines;
  for (const auto& [kind, line] : all) lines.push_back(line);
  const std::vector<std::string> pieces = {"\"",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "-1",
                                           "1e999",
                                           "NaN",
                                           "null",
                                           "true",
                                           "99999999999999999999",
                                           "\\u0000",
                                           "\xff",
                                           "\"is\":",
                                           "\"\"",
                                           "0.5",
                                           "\n"};
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  for (int i = 0; i < 20000; i++) {
    auto line = lines[below(lines.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; changes--) {
      const auto at = below(line.size() + 1);
      switch (below(4)) {
        case 0:
          line.insert(at, pieces[below(pieces.size())]);
          break;
        case 1:
          line.erase(at, 1 + below(12));
          break;
        case 2:
          if (at < line.size()) line[at] = static_cast<char>(below(256));
          break;
        default:
          line.insert(at, lines[below(lines.size())].substr(0, 40));
      }
    }
    std::string why;
    const auto message = tsrun::parse<tsrun::AnyMessage>(line, why);
    ASSERT_EQ(message.has_value(), why.empty()) << line;
    if (!message) continue;
    const auto again = std::visit([](const auto& m) { return tsrun::encode(m); }, *message);
    ASSERT_TRUE(tsrun::parse<tsrun::AnyMessage>(again, why)) << line << "\n" << again << ": " << why;
  }
}

}  // namespace
}  // namespace tessera
