#include "framework/jinja/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"

namespace tessera::jinja {
namespace {

using LibraryJson = nlohmann::ordered_json;

std::string render(const std::string& source, const LibraryJson& messages = LibraryJson::parse(R"([{"role": "user"}])"),
                   const ChatTemplateInput& input = {}, const ChatTemplateLimits& limits = {}) {
  return ChatTemplate(source, "t", limits).render(read_json(messages.dump()), input);
}

std::string error_of(const std::string& source, const ChatTemplateLimits& limits = {}) {
  try {
    return "rendered: " + render(source, LibraryJson::parse(R"([{"role": "user"}])"), {}, limits);
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
    const auto one = LibraryJson::parse(line);
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
  EXPECT_EQ(error_of("{{ 1 is escaped }}"), "t:1: the test escaped is not supported");
  EXPECT_EQ(error_of("\n{{ 'x'.format(3) }}"), "t:2: the method format of str is not supported");
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
  EXPECT_THROW(render("x", LibraryJson::array()), ConfigError);
  EXPECT_THROW(render("x", LibraryJson::parse(R"(["text"])")), ConfigError);
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

// Each of these would make a text of gigabytes, or a value that unfolds to one.
TEST(ChatTemplate, NoFilterOperatorOrMethodMakesMoreThanTheLimit) {
  ChatTemplateLimits small;
  small.output_bytes = 1 << 20;
  small.created_bytes = 16 << 20;
  for (
      const std::string source : {
          "{{ 'a'.replace('', 'b'*100000)|replace('b','cc'*100000) }}",
          "{{ ('a'*100000).replace('a', 'b'*100000) }}",
          "{{ ('\n'*100000)|indent('x'*100000, blank=true) }}",
          "{{ 'a'|indent('x'*1000000, first=true)|indent('x'*1000000, first=true) }}",
          "{{ range(100000)|join('x'*100000) }}",
          "{{ ('x'*100000).join(['a'] * 30000) }}",
          "{{ [1, 2, 3] * 1000000000000 }}",
          "{{ 1000000000000 * (1, 2) }}",
          "{{ 'ab' * 1000000000000 }}",
          "{% set x = 'a' * 900000 %}{{ x ~ x }}",
          "{% set x = 'a' * 900000 %}{{ x + x }}",
          "{% set x = 'a' * 900000 %}{{ x }}{{ x }}",
          "{% set x %}{% for i in range(2000) %}{{ 'a' * 1000 }}{% endfor %}{% endset %}",
          "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{{ f(f(f('a' * 300000))) }}",
          "{{ ('a' * 900000)|list }}",
          "{{ ('a' * 900000)[::-1] }}",
          "{{ ('a,' * 400000).split(',') }}",
          "{{ ('a ' * 400000).split() }}",
          "{{ ('a,' * 400000).rsplit(',', 1000000) }}",
          "{{ ('a\n' * 400000).splitlines() }}",
          "{% for c in 'a' * 900000 %}{% endfor %}",
          "{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == [] }}",
          "{% set n = namespace(x={'a': 1}) %}{% for i in range(90) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}",
          "{{ (range(1000)|list)|tojson(indent='x' * 100000) }}",
          "{{ (range(1000)|list)|tojson(separators=('x' * 100000, '')) }}",
          "{{ {'a': 1, 'b': 2, 'c': 3}|tojson(separators=('', 'x' * 500000)) }}",
          "{{ ([1] * 10000)|tojson(indent=1000000000000) }}",
          "{{ ('<' * 300000)|safe + '<' * 300000 }}",
      })
    EXPECT_NE(error_of(source, small).find("limit"), std::string::npos)
        << source << ": " << error_of(source, small).substr(0, 200);
}

// Reading takes time too, also of what is not printed.
TEST(ChatTemplate, NoTemplateReadsWithoutAnEnd) {
  ChatTemplateLimits small;
  small.steps = 200000;
  for (const std::string source : {
           "{% set r = range(9999)|list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ x|length }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{% if x == x ~ '' %}{% endif %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ x[-1] }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ 'b' in x }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ x.find('b') }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ 'b'.count(x) }}{% endfor %}",
           "{% set x = range(99999)|list %}{% for i in range(9999) %}{{ -1 in x }}{% endfor %}",
           "{% set x = range(99999)|list %}{% for i in range(9999) %}{% if x == [] %}{% endif %}{% endfor %}",
       })
    EXPECT_NE(error_of(source, small).find("t:1: the template takes too many steps"), std::string::npos)
        << source << ": " << error_of(source, small).substr(0, 200);
  small.source_bytes = 10;
  EXPECT_NE(error_of("{{ 'aaaaaaaaaa' }}", small).find("limit"), std::string::npos);
}

TEST(ChatTemplate, LongTextsAreSplitInOnePass) {
  EXPECT_EQ(error_of("{{ ('ab ' * 300000).split()|length }}"), "rendered: 300000");
  EXPECT_EQ(error_of("{{ '\u2003a  b c '.split(none, 1) }}"), "rendered: ['a', 'b c ']");
  EXPECT_EQ(error_of("{{ ' a b'.split(none, 0) }}"), "rendered: ['a b']");
  EXPECT_EQ(error_of("{{ ' \n'.split() }}{{ ''.split(',') }}{{ 'a,b,c'.rsplit(',', 1) }}"),
            "rendered: []['']['a,b', 'c']");
  EXPECT_EQ(error_of("{{ 'äßc'|reverse }}{{ 'äßc'|first }}{{ 'cß'|last }}{{ 'äßc'[1] }}{{ 'äßc'[-2:] }}"),
            "rendered: cßääßßßc");
  EXPECT_EQ(error_of("{{ 'ab'.replace('', '-') }}{{ 'äb'.replace('', '-', 2) }}{{ ''.replace('', 'x') }}"),
            "rendered: -a-b--ä-bx");
}

TEST(ChatTemplate, ListsArePrintedAsByPython) {
  EXPECT_EQ(error_of("{{ ['ä€🌍', '\\n\\x01\\x7f\\xa0\\u200b\\ue000\\U000e0001\\u2028 \\\\', \"it's\", '\\'\"'] }}"),
            R"(rendered: ['ä€🌍', '\n\x01\x7f\xa0\u200b\ue000\U000e0001\u2028 \\', "it's", '\'"'])");
  EXPECT_NE(
      error_of("{{ ['\\U0001fae8'] }}").find("t:1: printing a list or dictionary that holds the character U+1fae8"),
      std::string::npos);  // of Unicode 15
}

// Transformers' tojson is Python's json.dumps; the texts are those of Python 3.12.
TEST(ChatTemplate, ToJsonHasTheArgumentsOfPython) {
  const std::string value = "{'b': [1, 2.0, 'ä\U0001F30D\x7f'], 'a': {}, 'C': [[], true, none]}";
  EXPECT_EQ(error_of("{{ " + value + "|tojson }}"),
            "rendered: {\"b\": [1, 2.0, \"ä🌍\x7f\"], \"a\": {}, \"C\": [[], true, null]}");
  EXPECT_EQ(error_of("{{ " + value + "|tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}"),
            R"(rendered: {"C":[[],true,null],"a":{},"b":[1,2.0,"\u00e4\ud83c\udf0d\u007f"]})");
  EXPECT_EQ(error_of("{{ {'a': [1, {}]}|tojson(indent=2) }}"), "rendered: {\n  \"a\": [\n    1,\n    {}\n  ]\n}");
  EXPECT_EQ(error_of("{{ {'a': [1, 2]}|tojson(indent='\t', separators=[', ', ' = ']) }}"),
            "rendered: {\n\t\"a\" = [\n\t\t1, \n\t\t2\n\t]\n}");
  EXPECT_EQ(error_of("{{ [1]|tojson(indent=0) }}{{ [1]|tojson(false, -3) }}{{ [1]|tojson(indent=true) }}"),
            "rendered: [\n1\n][\n1\n][\n 1\n]");
  EXPECT_EQ(error_of("{{ {1: 1, 2.5: 2, true: 3, none: 4}|tojson }}"), R"(rendered: {"1": 3, "2.5": 2, "null": 4})");
  EXPECT_EQ(error_of("{{ [1, 2]|tojson(separators='ab') }}{{ [1, 2]|tojson(separators=none, indent=none) }}"),
            "rendered: [1a2][1, 2]");
  EXPECT_NE(error_of("{{ 1|tojson(separators=(',',)) }}").find("t:1: tojson: separators must be two strings"),
            std::string::npos);
  EXPECT_NE(error_of("{{ 1|tojson(indent=1.5) }}").find("t:1: tojson"), std::string::npos);
  EXPECT_NE(error_of("{{ {(1, 2): 1}|tojson }}").find("t:1: keys must be"), std::string::npos);
  EXPECT_NE(error_of("{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}").find("not supported"), std::string::npos);
}

// tests/end_to_end/chat_template_test.py compares more.jinja, which uses all of these, with Jinja.
TEST(ChatTemplate, ValuesAreSortedComparedAndAdded) {
  EXPECT_EQ(
      error_of("{{ {'b': 1, 'A': 2, 'a': 0}|dictsort }}{{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }}"),
      "rendered: [('A', 2), ('a', 0), ('b', 1)][('A', 2), ('b', 1)]");
  EXPECT_EQ(error_of("{{ ['b', 'A', 'a']|sort }}{{ ['b', 'A', 'a']|sort(true, true) }}{{ [3, 1, 2.5]|sort }}"),
            "rendered: ['A', 'a', 'b']['b', 'a', 'A'][1, 2.5, 3]");
  EXPECT_EQ(
      error_of("{{ ['b', 'B', 1, 1.0, 'a']|unique|list }}{{ [2, 7, 7]|max }}{{ ['b', 'A']|min }}{{ [1, 2.5]|sum }}"),
      "rendered: ['b', 1, 'a']7A3.5");
  EXPECT_EQ(
      error_of("{{ [{'n': 2}, {'n': 1}]|sort(attribute='n') }}{{ [{'n': 2}]|sum('n', 3) }}{{ []|max is defined }}"),
      "rendered: [{'n': 1}, {'n': 2}]5False");
  EXPECT_EQ(
      error_of(
          "{{ ' 12 '|int }}{{ '3.9'|int }}{{ 'x'|int }}{{ 'my_x'|int(7) }}{{ none|int }}{{ '+4'|int }}{{ '+-4'|int }}"),
      "rendered: 12307040");
  EXPECT_EQ(
      error_of(
          "{{ '1e3'|float }}{{ 'x'|float }}{{ 'x'|float(none) }}{{ 2.5|round }}{{ 2.675|round(2) }}{{ 7|round }}{{ "
          "2.1|round(0, 'ceil') }}"),
      "rendered: 1000.00.0None2.02.6773.0");
  EXPECT_NE(error_of("{{ 'inf'|float }}").find("not supported"), std::string::npos);
  EXPECT_NE(error_of("{{ [1, 'a']|sort }}").find("t:1: "), std::string::npos);
}

TEST(ChatTemplate, ElseOfALoopIsRenderedUnlessAPassReachedTheEndOfTheBody) {
  EXPECT_EQ(error_of("{% for i in [1] %}{% break %}{% else %}E{% endfor %}"), "rendered: E");
  EXPECT_EQ(error_of("{% for i in [1,2] %}{{i}}{% if true %}{% continue %}{% endif %}{% else %}E{% endfor %}"),
            "rendered: 12E");
  EXPECT_EQ(error_of("{% for i in [1,2] %}{{i}}{% if i == 1 %}{% continue %}{% endif %}{% else %}E{% endfor %}"),
            "rendered: 12");
  EXPECT_EQ(error_of("{% for i in [1,2] %}{{i}}{% if i == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}"),
            "rendered: 12");
  EXPECT_EQ(error_of("{% for i in [1,2] if i > 5 %}{{ i }}{% else %}E{% endfor %}"), "rendered: E");
  EXPECT_EQ(error_of("{% for j in [1,2] %}{{ j }}{% for i in [] %}{% else %}{% break %}{% endfor %}x{% endfor %}"),
            "rendered: 1");
}

// Jinja's filter is a generator: it tests an item when the loop asks for it, and `loop` may ask ahead.
TEST(ChatTemplate, TheFilterOfALoopTestsAnItemWhenItIsNeeded) {
  EXPECT_EQ(render("{% set ns=namespace(found=false) %}{% for m in messages if not ns.found %}{{ m.role }};"
                   "{% set ns.found=true %}{% endfor %}",
                   LibraryJson::parse(R"([{"role": "system"}, {"role": "user"}, {"role": "assistant"}])")),
            "system;");
  const auto loop = [](const std::string& start, const std::string& body) {
    return error_of("{% set ns=namespace(n=9) %}{% for i in [1,2,3,4] if i < ns.n %}" + start + "{{ i }}" + body +
                    "{% endfor %}");
  };
  EXPECT_EQ(loop("{{ loop.index }}", ";{% set ns.n=2 %}"), "rendered: 11;");
  EXPECT_EQ(loop("", "{{ loop.last }};{% set ns.n=2 %}"), "rendered: 1False;2True;");
  EXPECT_EQ(loop("", "{{ loop.nextitem }};{% set ns.n=2 %}"), "rendered: 12;2;");
  EXPECT_EQ(loop("{% set ns.n=3 %}", "/{{ loop.length }}/{{ loop.revindex }}/{{ loop.revindex0 }};{% set ns.n=1 %}"),
            "rendered: 1/2/2/1;2/2/1/0;");
  EXPECT_EQ(loop("", "{% if loop.index == 2 %}/{{ loop.length }}{% endif %}{{ loop.previtem }};{% set ns.n=ns.n-2 %}"),
            "rendered: 1;2/41;32;43;");
}

TEST(ChatTemplate, TheFilterOfALoopSeesTheVariablesAroundTheLoop) {
  EXPECT_EQ(error_of("{% for i in [1,2] %}{% for j in [1,2,3] if j != i %}{{ loop.index }}{{ j }}{{ loop.last }};"
                     "{% endfor %}{{ loop.last }}|{% endfor %}"),
            "rendered: 12False;23True;False|11False;23True;True|");
  EXPECT_EQ(error_of("{% macro f(l) %}{% set i = 7 %}{{ l.nextitem }}{{ l.last }}{% endmacro %}{% set k = 3 %}"
                     "{% for i in [1,2,3,4] if i != k %}{{ i }}>{{ f(loop) }};{% endfor %}"),
            "rendered: 1>2False;2>4False;4>True;");
}

TEST(ChatTemplate, AFilterThatWouldFailForAnItemBehindTheBreakIsNotEvaluated) {
  const std::string begin = "\n{% for i in [1,2,'a'] if i < 3 %}{{ i }}";
  EXPECT_EQ(error_of(begin + "{% if i == 2 %}{% break %}{% endif %}{% endfor %}"), "rendered: \n12");
  EXPECT_EQ(error_of(begin + "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}"), "rendered: \n12");
  EXPECT_EQ(error_of(begin + "{% if loop.last or i == 2 %}{% break %}{% endif %}{% endfor %}"),
            "t:2: comparing the order of str and int is not supported");
}

TEST(ChatTemplate, LoopIsOneObjectThatMayOutliveItsLoop) {
  EXPECT_EQ(error_of("{% set ns=namespace() %}{% for i in [1,2,3] %}{% set ns.l = loop if i == 1 else ns.l %}"
                     "{{ ns.l.index }}{{ ns.l.last }};{% endfor %}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.previtem }}"),
            "rendered: 1False;2False;3True;3True2");
  EXPECT_EQ(error_of("{% set ns=namespace() %}{% for i in [1,2,3] if i > 1 %}{% set ns.l = loop %}{% endfor %}"
                     "{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.length }}"),
            "rendered: 2True2");
  EXPECT_EQ(error_of("{% set ns=namespace() %}{% for i in [1,2,3] if i > 1 %}{% set ns.l = loop %}{% break %}"
                     "{% endfor %}{{ ns.l.index }}{{ ns.l.last }}"),
            "t:1: the next item or the length of a for loop with a filter is not supported after the loop");
  EXPECT_EQ(error_of("{% set ns=namespace() %}{% for i in [1,2] if ns.l is not defined or not ns.l.last %}"
                     "{% set ns.l = loop %}{% endfor %}"),
            "t:1: the filter of a for loop needs the next item or the length of its own loop");
}

TEST(ChatTemplate, BreakAndContinueLeaveASetBlock) {
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% set z %}{% break %}{% endset %}y{{z}}{% endfor %}"), "rendered: ");
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% set z %}a{% continue %}{% endset %}y{% else %}E{% endfor %}"),
            "rendered: E");
  EXPECT_EQ(error_of("{% set z = 1 %}{% for i in [1,2] %}{{ z }}{% set z %}a{{ i }}{% if i == 1 %}{% continue %}"
                     "{% endif %}b{% endset %}[{{ z }}]{% endfor %}{{ z }}"),
            "rendered: 11[a2b]1");
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% set z %}{% for i in [1,2] %}{{ i }}{% break %}{% endfor %}c{% endset %}"
                     "y{{ z }}{% endfor %}"),
            "rendered: y1cy1c");
}

TEST(ChatTemplate, BreakAndContinueCannotLeaveGeneration) {
  EXPECT_EQ(error_of("{% for m in [1,2] %}\n{% generation %}{% break %}{% endgeneration %}{% endfor %}"),
            "t:2: break within generation cannot end a for loop outside of it");
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% set z %}{% generation %}{% continue %}{% endgeneration %}{% endset %}"
                     "{% endfor %}"),
            "t:1: continue within generation cannot end a for loop outside of it");
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% generation %}{% for i in [1,2] %}{{ i }}{% break %}{% endfor %}"
                     "{% endgeneration %}{% if m == 1 %}{% continue %}{% endif %}y{% endfor %}"),
            "rendered: 11y");
  EXPECT_EQ(error_of("{% for m in [1,2] %}{% generation %}{% macro f() %}{% break %}{% endmacro %}{% endgeneration %}"
                     "{% endfor %}"),
            "t:1: a macro within a for loop or a macro is not supported");
}

TEST(ChatTemplate, ElseOfALoopHasAScopeOfItsOwn) {
  EXPECT_EQ(error_of("{% for i in [] %}{% else %}{% set a=1 %}{{ a }}{% endfor %}[{{a}}]"), "rendered: 1[]");
  EXPECT_EQ(error_of("{% set a=2 %}{% for i in [] %}{% else %}{{ a }}{% set a=1 %}{{ a }}{% endfor %}[{{a}}]"),
            "rendered: 21[2]");
}

// Jinja's filters test the value itself first; `tools` is None.
TEST(ChatTemplate, MapAndSelectOfAFalseValueGiveNoItems) {
  EXPECT_EQ(error_of("{{ tools|selectattr('type','equalto','function')|list }}{{ tools|map(attribute='name')|join }}"),
            "rendered: []");
  EXPECT_EQ(error_of("{{ none|map('upper')|list }}{{ 0|select('odd')|list }}{{ false|reject|list }}"
                     "{{ ''|rejectattr('a')|list }}{{ 0.0|map('none_such')|list }}{{ x|map('upper')|list }}"),
            "rendered: [][][][][][]");
  EXPECT_EQ(error_of("{{ (tools|map('upper')) is iterable }}{{ 1 if tools|select else 2 }}"), "rendered: True1");
  EXPECT_EQ(error_of("{{ 5|map('upper')|list }}"), "t:1: 'int' object is not iterable");
}

TEST(ChatTemplate, StringsArePaddedAndSearched) {
  EXPECT_EQ(error_of("{{ 'ab'.center(5) }}|{{ 'a'.center(4, 'ß') }}|{{ 'a'|center(4) }}|{{ 'a'.ljust(3, '.') }}{{ "
                     "'a'.rjust(3) }}"),
            "rendered:   ab |ßaßß| a  |a..  a");
  EXPECT_EQ(error_of("{{ '-7'.zfill(4) }}{{ 'abc'.zfill(2) }}{{ 'äbäc'.rfind('ä') }}{{ 'a'.rfind('b') }}"),
            "rendered: -007abc2-1");
  EXPECT_EQ(
      error_of(
          "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'a'.partition('=') }}{{ 'a'.rpartition('=') }}"),
      "rendered: ('a', '=', 'b=c')('a=b', '=', 'c')('a', '', '')('', '', 'a')");
  EXPECT_EQ(
      error_of("{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'a1'.isalnum() }}{{ 'a1'.isalpha() }}{{ 'A1'.isupper() }}{{ "
               "'1' is lower }}{{ 'a' is lower }}{{ 'ä'.isascii() }}{{ true is sameas true }}{{ 1 is sameas true }}"),
      "rendered: TrueFalseTrueFalseTrueFalseTrueFalseTrueFalse");
  EXPECT_NE(error_of("{{ 'a'.center(1000000000000) }}").find("limit"), std::string::npos);
  EXPECT_NE(error_of("{{ 'a'.zfill(9223372036854775807) }}").find("limit"), std::string::npos);
  EXPECT_NE(error_of("{{ 'a'|center(1000000000) }}").find("limit"), std::string::npos);
  EXPECT_EQ(error_of("{{ '<a>'|e }}{{ '<'|escape + '>' }}"), "rendered: &lt;a&gt;&lt;&gt;");
}

TEST(ChatTemplate, MethodsThatSearchTakeAStartAndAnEnd) {
  EXPECT_EQ(error_of("{{ 'abc'.startswith('b',1) }}{{ 'abc'.startswith('b',-2) }}{{ 'abc'.startswith('bc',1,2) }}"
                     "{{ 'abc'.startswith(('x','c'),2) }}{{ 'abc'.startswith('',3) }}{{ 'abc'.startswith('',4) }}"
                     "{{ 'abc'.startswith('a',none,none) }}{{ 'abc'.startswith('',2,1) }}"),
            "rendered: TrueTrueFalseTrueTrueFalseTrueFalse");
  EXPECT_EQ(error_of("{{ 'abc'.endswith('b',0,2) }}{{ 'abc'.endswith('b',0,-1) }}{{ 'abc'.endswith('abc',1) }}"
                     "{{ 'abc'.endswith(('x','bc'),1) }}{{ 'abc'.endswith('',4) }}{{ 'abc'.endswith('',-9,-9) }}"),
            "rendered: TrueTrueFalseTrueFalseTrue");
  EXPECT_EQ(error_of("{{ 'abab'.find('b',2) }},{{ 'abab'.find('ab',-2) }},{{ 'abab'.find('ab',1,3) }},"
                     "{{ 'abab'.find('',4) }},{{ 'abab'.find('',5) }},{{ 'abab'.find('b',none,1) }},"
                     "{{ 'äöäö'.find('ö',2) }},{{ 'äöäö'.find('ö',-3,-1) }},{{ 'äöäö'.find('ä',true) }}"),
            "rendered: 3,2,-1,4,-1,-1,3,1,2");
  EXPECT_EQ(error_of("{{ 'abab'.rfind('ab',0,3) }},{{ 'äbäb'.rfind('ä',1) }},{{ 'äbäb'.rfind('',1,3) }},"
                     "{{ 'abab'.rfind('a',3) }},{{ 'abab'.rfind('',9) }},{{ 'abab'.rindex('a',0,-2) }}"),
            "rendered: 0,2,3,-1,-1,0");
  EXPECT_EQ(error_of("{{ 'abab'.index('a',1) }},{{ 'äbab'.index('b',-2) }},{{ 'abab'.count('b',2) }},"
                     "{{ 'äbäb'.count('ä',1,-1) }},{{ 'äb'.count('') }},{{ 'äb'.count('',1) }},{{ 'äb'.count('',3) }},"
                     "{{ 'äb'.count('',2,1) }},{{ 'aaaa'.count('aa',1) }}"),
            "rendered: 2,3,1,1,3,2,0,0,1");
  EXPECT_EQ(error_of("{{ 'abab'.find('a', 9223372036854775807) }},"
                     "{{ 'abab'.find('a', -9223372036854775807 - 1, 9223372036854775807) }}"),
            "rendered: -1,0");
  EXPECT_EQ(error_of("{{ ('abab'|safe).find('b', 2) }}{{ ('abab'|safe).startswith('b', 1) }}"), "rendered: 3True");
  EXPECT_EQ(error_of("{{ [1,2,1].index(1, 1) }},{{ (1,2,1).index(1, -1) }},{{ [1,2,1].index(2,0,-1) }}"),
            "rendered: 2,2,1");
}

// Python refuses these too.
TEST(ChatTemplate, MethodsThatSearchRefuseOtherArguments) {
  EXPECT_EQ(error_of("{{ 'abab'.index('a',3) }}"), "t:1: index: substring not found");
  EXPECT_EQ(error_of("{{ 'abab'.rindex('a',3) }}"), "t:1: rindex: substring not found");
  EXPECT_EQ(error_of("{{ [1,2,1].index(1,1,2) }}"), "t:1: index: the value is not in the list");
  EXPECT_EQ(error_of("{{ 'abab'.find('a', 1.0) }}"), "t:1: find: the argument start must be an integer, not float");
  EXPECT_EQ(error_of("{{ 'abab'.find('a', x) }}"), "t:1: find: the argument start must be an integer, not Undefined");
  EXPECT_EQ(error_of("{{ 'abab'.find('a', start=1) }}"), "t:1: find takes no keyword arguments");
  EXPECT_EQ(error_of("{{ 'abab'.find('a', 1, 2, 3) }}"), "t:1: find takes at most 3 argument(s), not 4");
  EXPECT_EQ(error_of("{{ 'abab'.find() }}"), "t:1: find needs a string");
  EXPECT_EQ(error_of("{{ 'abc'.startswith(['a'], 0) }}"), "t:1: startswith and endswith need a string, not list");
  EXPECT_EQ(error_of("{{ [1].index(1, none) }}"), "t:1: index: the argument start must be an integer, not NoneType");
  EXPECT_EQ(error_of("{{ range(3).index(1, 0) }}"), "t:1: index takes at most 1 argument(s), not 2");
  EXPECT_EQ(error_of("{{ [1].count(1, 0) }}"), "t:1: count takes at most 1 argument(s), not 2");
  EXPECT_EQ(error_of("{{ [1].index(value=1) }}"), "t:1: index takes no keyword arguments");
}

// As Markup of MarkupSafe where nothing is escaped: + escapes the other text.
TEST(ChatTemplate, ATextMarkedAsSafeCanStandAnywhere) {
  EXPECT_EQ(
      error_of(
          "{% set x = [1]|tojson|safe if true else '<'|string %}{{ x }}{{ x|length }}{{ x ~ '<' }}{{ x == '[1]' }}"),
      "rendered: [1]3[1]<True");
  EXPECT_EQ(error_of("{{ '<a>'|safe + '<b>' }}{{ '<&\"' + \"'\"|safe }}{{ 2 * '<'|safe + '>' }}"),
            "rendered: <a>&lt;b&gt;&lt;&amp;&#34;'<<&gt;");
  EXPECT_EQ(error_of("{{ ['<'|safe, '>']|join(',') }}{{ '<'|safe is string }}{{ '<'|safe|string + '<' }}"),
            "rendered: <,>True<&lt;");
  EXPECT_NE(error_of("{{ 'a'|safe|upper }}").find("t:1: the filter upper of a text marked as safe"), std::string::npos);
  EXPECT_NE(error_of("{{ ('a'|safe).strip() }}").find("t:1: the method strip"), std::string::npos);
}

TEST(ChatTemplate, ToolsAreNoneUnlessTheyAreGiven) {
  const std::string source = "{% if tools is not none %}{% for t in tools %}{{ t | tojson }};{% endfor %}{% endif %}";
  const auto messages = LibraryJson::parse(R"([{"role": "user"}])");
  ChatTemplateInput input;
  EXPECT_EQ(render(source, messages, input), "");
  input.tools = parse_json(R"([{"type": "function", "function": {"name": "add", "a": 1}}, {}])");
  EXPECT_EQ(render(source, messages, input), R"({"type": "function", "function": {"name": "add", "a": 1}};{};)");
  EXPECT_TRUE(ChatTemplate(source, "t").has_tools());
  EXPECT_FALSE(ChatTemplate("{{ messages[0].role }}", "t").has_tools());
}

TEST(ChatTemplate, TheDateIsFormattedWhenItIsGiven) {
  ChatTemplateInput input;
  input.now = 1722000000;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}", LibraryJson::parse(R"([{"role": "user"}])"), input),
            "26 Jul 2024");
}

}  // namespace
}  // namespace tessera::jinja
