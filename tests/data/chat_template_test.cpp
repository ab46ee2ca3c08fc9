#include "framework/data/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& messages = Json::parse(R"([{"role": "user"}])"),
                   const ChatTemplateInput& input = {}, const ChatTemplateLimits& limits = {}) {
  return ChatTemplate(source, "t", limits).render(messages, input);
}

std::string error_of(const std::string& source, const ChatTemplateLimits& limits = {}) {
  try {
    return "rendered: " + render(source, Json::parse(R"([{"role": "user"}])"), {}, limits);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, RendersWhatTransformersRendered) {
  const std::string folder = std::string(TESTS_DATA) + "/chat_templates/";
  std::ifstream file(folder + "cases.jsonl");
  int texts = 0, refusals = 0;
  std::set<std::string> templates;
  for (std::string line; std::getline(file, line);) {
    const auto one = Json::parse(line);
    const auto name = one["template"].get<std::string>();
    templates.insert(name);
    ChatTemplateInput input;
    input.add_generation_prompt = one["add_generation_prompt"];
    for (const auto& [token, words] : one["special_tokens"].items()) input.special_tokens.emplace_back(token, words);
    std::optional<std::string> got;
    std::string why;
    try {
      got = render(read_file(folder + name), one["messages"], input);
    } catch (const ConfigError& error) {
      why = error.what();
      EXPECT_EQ(why.find("not supported"), std::string::npos) << name << " " << why;
    }
    if (one["text"].is_null()) {
      EXPECT_FALSE(got) << line;
      ++refusals;
    } else {
      EXPECT_EQ(got.value_or("refused: " + why), one["text"].get<std::string>()) << name << " " << one["messages"];
      ++texts;
    }
  }
  EXPECT_EQ(templates.size(), 13U);
  EXPECT_GT(texts, 200);
  EXPECT_GT(refusals, 50);
}

TEST(ChatTemplate, WhatIsNotImplementedIsNamedWithItsLine) {
  EXPECT_EQ(error_of("\n{% include 'x' %}").rfind("t:2: the tag include is not supported", 0), 0U);
  EXPECT_EQ(error_of("a\n\n{{ 'x' | wordwrap }}"), "t:3: the filter wordwrap is not supported");
  EXPECT_EQ(error_of("{{ 1 is sameas 1 }}"), "t:1: the test sameas is not supported");
  EXPECT_EQ(error_of("\n{{ 'x'.center(3) }}"), "t:2: the method center of str is not supported");
  EXPECT_EQ(error_of("{{ [].append(1) }}"), "t:1: the method append of list is not supported");
  EXPECT_EQ(error_of("{{ lipsum() }}"), "t:1: the global function lipsum is not supported");
  EXPECT_EQ(error_of("{{ ''.__class__ }}"), "t:1: the method __class__ of str is not supported");
  EXPECT_EQ(error_of("{{ 'ä' | upper }}"), "t:1: changing the case of text beyond ASCII is not supported");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"), "t:1: an integer beyond 64 bits is not supported");
  EXPECT_EQ(error_of("{{ strftime_now('%Y') }}").rfind("t:1: strftime_now is not supported here", 0), 0U);
  EXPECT_EQ(error_of("{% raw %}{{ x }}{% endraw %}"), "t:1: the tag raw is not supported");
}

TEST(ChatTemplate, MistakesAreToldWithTheirLine) {
  EXPECT_EQ(error_of("\n{{ raise_exception('no ' ~ messages[0].role) }}"),
            "t:2: the chat template refuses the conversation: no user");
  EXPECT_EQ(error_of("{% if true %}\nx"), "t:2: the template ends, but {% endif %} is missing");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "t:2: 'x' is undefined");
  EXPECT_EQ(error_of("{{ 'a' + 1 }}"), "t:1: the operator + does not take str and int");
  EXPECT_EQ(error_of("{{ (1 }}"), "t:1: unexpected }");
  EXPECT_EQ(error_of("{{ 'a"), "t:1: a string that begins with ' does not end");
  EXPECT_EQ(error_of("{# a"), "t:1: a comment {# does not end");
  EXPECT_EQ(error_of("\xC3("), "t:1: the chat template is not UTF-8");
  EXPECT_THROW(render("x", Json::array()), ConfigError);
  EXPECT_THROW(render("x", Json::parse(R"(["text"])")), ConfigError);
}

TEST(ChatTemplate, NoTemplateTakesMoreThanItsLimits) {
  ChatTemplateLimits small;
  small.steps = 10000;
  small.output_bytes = 10000;
  small.created_bytes = 100000;
  EXPECT_NE(
      error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", small).find("limit"),
      std::string::npos);
  ChatTemplateLimits steps;
  steps.steps = 10000;
  EXPECT_NE(error_of("{% for i in range(200) %}{% for j in range(200) %}{% endfor %}{% endfor %}", steps).find("steps"),
            std::string::npos);
  EXPECT_NE(
      error_of("{% set x = namespace(t='ab') %}{% for i in range(64) %}{% set x.t = x.t ~ x.t %}{% endfor %}", small)
          .find("limit"),
      std::string::npos);
  EXPECT_NE(error_of("{{ 'a' * 1000000000000 }}", small).find("limit"), std::string::npos);
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("more than 100 deep"), std::string::npos);
  EXPECT_NE(error_of("{% set n = namespace(l=[]) %}{% for i in range(500) %}{% set n.l = [n.l] %}{% endfor %}")
                .find("nested"),
            std::string::npos);
  EXPECT_NE(error_of(std::string("{{ ") + std::string(5000, '(') + "1" + std::string(5000, ')') + "}}")
                .find("nested more than"),
            std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 100000; ++i) chain += "+1";
  EXPECT_NE(error_of(chain + " }}").find("nested more than"), std::string::npos);
  EXPECT_EQ(error_of("{% set n = namespace() %}{% set n.me = n %}x"), "rendered: x");
}

TEST(ChatTemplate, TheDateIsFormattedWhenItIsGiven) {
  ChatTemplateInput input;
  input.now = 1722000000;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}", Json::parse(R"([{"role": "user"}])"), input), "26 Jul 2024");
}

}  // namespace
}  // namespace tessera::data
