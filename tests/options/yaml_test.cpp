#include "framework/options/yaml.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "framework/base/error.h"
#include "framework/options/option_type.h"
#include "framework/options/same.h"
#include "tests/own_folder.h"

namespace tessera::options {
namespace {

using Lines = std::vector<std::string>;

class Yaml : public InOwnFolder {
 protected:
  Value read(const std::string& yaml, const Lines& sets = {}) {
    write("run.yaml", yaml);
    return read_yaml("run.yaml", sets, report);
  }
  Lines problems(const std::string& yaml, const Lines& sets = {}) {
    report = {};
    read(yaml, sets);
    return report.problems();
  }
  std::string where(const Value& tree, const std::string& path) { return text(tree.at(path)->origin); }
  Report report;
};

template <class F>
std::string number(const std::string& words) {
  F value{};
  return OptionType<F>::read(Value::of(words, {}), value) ? text(OptionType<F>::write(value)) : "refused";
}

TEST(Numbers, AreReadAsTheyLook) {
  EXPECT_EQ(number<double>("1e-5"), "1e-05");
  EXPECT_EQ(number<double>("3E-4"), "3e-04");
  EXPECT_EQ(number<double>(".5"), "0.5");
  EXPECT_EQ(number<double>("+2."), "2");
  EXPECT_EQ(number<double>("nan"), "refused");
  EXPECT_EQ(number<double>(".inf"), "refused");
  EXPECT_EQ(number<double>("1e999"), "refused");
  EXPECT_EQ(number<double>("1e-5x"), "refused");
  EXPECT_EQ(number<double>(""), "refused");
  EXPECT_EQ(number<std::int64_t>("010"), "10");
  EXPECT_EQ(number<std::int64_t>("-7"), "-7");
  EXPECT_EQ(number<std::int64_t>("+-7"), "refused");
  EXPECT_EQ(number<std::int64_t>("0x10"), "16");
  EXPECT_EQ(number<std::int64_t>("0o17"), "15");
  EXPECT_EQ(number<std::int64_t>("1e3"), "1000");
  EXPECT_EQ(number<std::int64_t>("2.5e1"), "25");
  EXPECT_EQ(number<std::int64_t>("9007199254740993"), "9007199254740993");
  EXPECT_EQ(number<std::int64_t>("1.5"), "refused");
  EXPECT_EQ(number<std::int64_t>("1_000"), "refused");
  EXPECT_EQ(number<std::int64_t>("99999999999999999999"), "refused");
  EXPECT_EQ(number<bool>("True"), "true");
  EXPECT_EQ(number<bool>("yes"), "refused");
}

TEST_F(Yaml, EveryNodeKnowsItsFileAndLine) {
  write("common.yaml", "a:\n  x: 1\n  list:\n    - p\n    - q\n");
  const auto tree = read("base: common.yaml\na:\n  y: 2\n", {"a.z=3"});
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(where(tree, "a.x"), "common.yaml:2 (base of run.yaml)");
  EXPECT_EQ(text(tree.at("a.list")->items[1].origin), "common.yaml:5 (base of run.yaml)");
  EXPECT_EQ(where(tree, "a.y"), "run.yaml:3");
  EXPECT_EQ(where(tree, "a.z"), "--set a.z");
}

TEST_F(Yaml, ByteOrderMarkAndWindowsLineEndsAreRead) {
  const auto tree = read(
      "\xef\xbb\xbf"
      "a:\r\n  x: one\r\n  y: [1,\r\n    2]\r\n");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(tree), "{a: {x: one, y: [1, 2]}}");
  EXPECT_EQ(where(tree, "a.y"), "run.yaml:3");
}

TEST_F(Yaml, MergeKeysAndAnchorsWork) {
  const auto tree = read(
      "x-usual: &usual {p: 1, q: 2}\nx-more: &more {q: 3, r: 4}\na:\n  <<: [*usual, *more]\n  p: 5\nb: {<<: *usual}\n");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(tree), "{a: {p: 5, q: 2, r: 4}, b: {p: 1, q: 2}}");
  EXPECT_EQ(where(tree, "a.r"), "run.yaml:2");
}

TEST_F(Yaml, AKeyGivenTwiceIsAnErrorWithBothLines) {
  EXPECT_EQ(problems("a:\n  x: 1\n  y: 2\n  x: 3\nb: 1\na: {}\n"),
            (Lines{"run.yaml:4: 'x' is given twice, first in line 2; keep one of them",
                   "run.yaml:6: 'a' is given twice, first in line 1; keep one of them"}));
  EXPECT_EQ(report.findings()[0].option, "a.x");
  write("common.yaml", "c: 1\n");
  EXPECT_EQ(problems("base: common.yaml\na: 1\nbase: absent.yaml\n"),
            (Lines{"run.yaml:3: 'base' is given twice, first in line 1; keep one of them; it may be a list"}));
}

TEST_F(Yaml, AListThatASetLengthensIsTheSets) {
  const auto tree = read("a: {x: [1, 2], y: [1, 2]}\n", {"a.x[3]=5", "a.y[1]=5"});
  EXPECT_EQ(where(tree, "a.x"), "--set a.x[3]");
  EXPECT_EQ(where(tree, "a.y"), "run.yaml:1");
}

TEST_F(Yaml, OfEqualNamesInJsonTheLastCounts) {
  const auto tree =
      parse_json_as_yaml("{\"a\": {\"x\": 1},\n\t\"b\": 1,\n\"a\": {\"y\": [2]},\n\"a\": 3}", "a.json", report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(tree), "{a: 3, b: 1}");
  EXPECT_EQ(where(tree, "a"), "a.json:4");
  EXPECT_EQ(report.notes(), (Lines{"a.json:3: 'a' is given twice, first in line 1; the last counts",
                                   "a.json:4: 'a' is given twice, first in line 3; the last counts"}));
}

TEST_F(Yaml, TabsThatIndentAreNamedAndTheRestIsRead) {
  EXPECT_EQ(problems("a:\n\tx: 1\n  y: 2\n  y: 3\n"),
            (Lines{"run.yaml:2: a tab indents this line; YAML takes only spaces",
                   "run.yaml:4: 'y' is given twice, first in line 3; keep one of them"}));
  EXPECT_EQ(problems("a:\n    x: 1\n \ty: 2\n"),
            (Lines{"run.yaml:3: a tab indents this line; YAML takes only spaces"}));
  EXPECT_FALSE(report.complete());
  EXPECT_EQ(problems("a:\n\t# only a remark\n\t\n  x: \"b\tc\"\t# after\n"), Lines{});
}

TEST_F(Yaml, TheEnvironmentIsRead) {
  setenv("TESSERA_TEST_A", "7", 1);
  setenv("TESSERA_TEST_E", "", 1);
  unsetenv("TESSERA_TEST_U");
  const auto tree = read(
      "a: '${TESSERA_TEST_A}-${TESSERA_TEST_U:-x${TESSERA_TEST_A}}'\nb: ${TESSERA_TEST_E:-1e-5}\nc: "
      "${TESSERA_TEST_U:-[1, 2]}\n"
      "d: $${TESSERA_TEST_A} $5\ne: ${TESSERA_TEST_U:-}\nf: \"${TESSERA_TEST_U:-}\"\n");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(tree), "{a: 7-x7, b: 1e-5, c: [1, 2], d: ${TESSERA_TEST_A} $5, e: null, f: }");
}

TEST_F(Yaml, AnUnsetVariableIsNamedWithItsLine) {
  unsetenv("TESSERA_TEST_U");
  EXPECT_EQ(
      problems("a:\n  x: ${TESSERA_TEST_U}\n  y: ${TESSERA_TEST_U/x}\n  z: \"${TESSERA\"\n"),
      (Lines{"run.yaml:2: the environment has no TESSERA_TEST_U; set it, or write ${NAME:-instead}",
             "run.yaml:3: '${TESSERA_TEST_U/x}' is not ${NAME} or ${NAME:-instead}; set it, or write ${NAME:-instead}",
             "run.yaml:4: '${TESSERA': a ${ is not closed; inside { } or [ ] it needs quotes, \"${NAME}\"; "
             "set it, or write ${NAME:-instead}"}));
  EXPECT_EQ(report.findings()[0].option, "a.x");
}

TEST_F(Yaml, AVariableInsideBracketsIsToldToTakeQuotes) {
  const auto told = problems("a: {x: 1, y: ${TESSERA_TEST_U}}\nb: 1\n");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("a ${NAME} needs quotes"), std::string::npos) << told[0];
  EXPECT_EQ(problems("a: [1, 2\nb: 1\n").at(0).find("needs quotes"), std::string::npos);
}

TEST_F(Yaml, ARecipeThatComesWithTheProgramIsABaseFromAnywhere) {
  write("run.yaml", "base: quickstart.yaml\nmodel_config: {num_layers: 7}\n");
  const auto tree = read_yaml("run.yaml", {}, report);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(tree.at("model_config.num_layers")->scalar, "7");
  EXPECT_EQ(tree.at("model_config.hidden_size")->scalar, "192");
  EXPECT_EQ(text(tree.at("model_config.hidden_size")->origin).substr(0, 24), "tessera:quickstart.yaml:");
}

TEST_F(Yaml, BasesAreLaidInOrderAndLookedForBesideTheFile) {
  std::filesystem::create_directory("deep");
  write("deep/one.yaml", "base: two.yaml\na: {x: one, y: one}\n");
  write("deep/two.yaml", "a: {x: two, y: two, z: two}\n");
  write("three.yaml", "a: {y: three}\n");
  EXPECT_EQ(text(read("base: [deep/one.yaml, three.yaml]\na: {w: run}\n")), "{a: {x: one, y: three, z: two, w: run}}");
  EXPECT_EQ(report.problems(), Lines{});
}

TEST_F(Yaml, ABaseThatCannotBeReadIsNamedWhereItIsAsked) {
  write("circle.yaml", "a: 1\nbase: run.yaml\n");
  EXPECT_EQ(problems("base: circle.yaml\n"), Lines{"circle.yaml:2: a file is its own base: run.yaml "
                                                   "-> circle.yaml -> run.yaml; take one of these bases away"});
  EXPECT_EQ(
      problems("a: 1\nbase:\n  - nowhere.yaml\n"),
      Lines{"run.yaml:3: the base 'nowhere.yaml' does not exist; it is looked for beside this file, as nowhere.yaml, "
            "and among the recipes that come with tessera"});
  EXPECT_EQ(problems("base: {x: 1}\n"), Lines{"run.yaml:1: base takes a file name or a list of them, not '{x: 1}'"});
  write("broken.yaml", "a: [1\nb: 2\n");
  EXPECT_EQ(problems("base: broken.yaml\n").at(0).substr(0, 33), "broken.yaml:2: this is not YAML: ");
}

TEST_F(Yaml, WhatIsNoRecipeIsSaidInOneLine) {
  report = {};
  read_yaml("nowhere.yaml", {}, report);
  EXPECT_EQ(report.problems(),
            Lines{"nowhere.yaml: cannot be read: No such file or directory; give the path of a recipe"});
  report = {};
  read_yaml(".", {}, report);
  EXPECT_EQ(report.problems(), Lines{".: is a folder; give the path of a recipe"});
  const std::string hint = "; a recipe has groups such as training_config";
  EXPECT_EQ(problems(""), Lines{"run.yaml: is empty" + hint});
  EXPECT_EQ(problems("# nothing\n\n"), Lines{"run.yaml: is empty" + hint});
  EXPECT_EQ(problems("- a\n"), Lines{"run.yaml: is a list, not a map of groups" + hint});
  EXPECT_EQ(problems("hello\n"), Lines{"run.yaml: is a word, not a map of groups" + hint});
  for (const char* words : {"a: 1\n---\nb: 2\n", "a: 1\n...\nb: 2\n", "a: 1\n---\n- b\n"})
    EXPECT_EQ(problems(words), Lines{"run.yaml:3: a second document begins here; a recipe is one document"}) << words;
  EXPECT_EQ(problems("a: 1\n--- b\n").size(), 1U);
  EXPECT_EQ(problems("{a: 1}\n{b: 2}\n").size(), 1U);  // no block map: where it ends needs no marker
  EXPECT_EQ(problems("a: 1\n- b\n").size(), 1U);
  EXPECT_EQ(problems("a: 1\nb: caf\xe9 \n"), Lines{"run.yaml:2: this is not UTF-8 text; save the file as UTF-8"});
  EXPECT_EQ(problems(",a:\n").size(), 1u);  // of which yaml-cpp reads documents without end
  EXPECT_EQ(problems("a: &x [*x]\n").size(), 1u);
  EXPECT_EQ(problems("? [a, b]\n: 1\n"), Lines{"run.yaml:1: the key is a list or map; expected a word"});
}

TEST_F(Yaml, AliasesOfAliasesEnd) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    bomb += text("a", i, ": &a", i, " [", before);
    for (int k = 0; k < 9; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_EQ(problems(bomb).size(), 1u);
}

TEST_F(Yaml, ATextThatIsNestedTenThousandDeepIsToldInOneLine) {
  const auto many = [](const std::string& words) {
    std::string all;
    for (int i = 0; i < 10000; ++i) all += words;
    return all;
  };
  std::string steps;
  for (int i = 0; i < 1000; ++i) steps += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  for (const auto& deep : {"a: " + many("[") + many("]"), "a: " + many("{a: ") + "1" + many("}"), many("- ") + "a",
                           many("? ") + "a", "a: " + many("["), steps}) {
    ASSERT_EQ(problems(deep).size(), 1u);
    EXPECT_NE(problems(deep)[0].find("nested more than"), std::string::npos) << problems(deep)[0];
  }
}

TEST_F(Yaml, AKeyOfItsOwnWinsOverAMergedOneWhereverItStands) {
  const std::string bases = "x-a: &a {p: 1, q: 1}\nx-b: &b {q: 2, r: 2}\n";
  EXPECT_EQ(text(read(bases + "g: {<<: [*a, *b], r: 3}\n")), "{g: {r: 3, p: 1, q: 1}}");
  EXPECT_EQ(text(read(bases + "g: {q: 4, <<: *a}\n")), "{g: {q: 4, p: 1}}");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(problems(bases + "g: {<<: [1, *a]}\n"), Lines{"run.yaml:3: '<<' takes a map, or a list of maps"});
}

TEST_F(Yaml, AKeyGivenTwiceIsAnErrorInAnyKindOfMap) {
  EXPECT_EQ(problems("g: {a: 1, b: 2, a: 3}\n"),
            Lines{"run.yaml:1: 'a' is given twice, first in line 1; keep one of them"});
  EXPECT_EQ(problems("g: 1\nh: 2\ng: 3\n"), Lines{"run.yaml:3: 'g' is given twice, first in line 1; keep one of them"});
}

TEST_F(Yaml, AValueOfWhichYamlReadsOnlyAPartIsRefused) {
  EXPECT_EQ(text(read("a: {x: 1}\n", {"a.x=\"run #1\"", "a.y=run#1", "a.z='%x'"})),
            "{a: {x: run #1, y: run#1, z: %x}}");
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(problems("a: {x: 1}\n", {"a.x=it's #1", "a.y=%x", "a.z=#1", "a.w=1\t#2"}),
            (Lines{"--set a.x: of 'it's #1' YAML reads 'it's' only; put it into quotes of YAML: \"a.x='it''s #1'\"",
                   "--set a.y: of '%x' YAML reads '' only; put it into quotes of YAML: \"a.y='%x'\"",
                   "--set a.z: of '#1' YAML reads '' only; put it into quotes of YAML: \"a.z='#1'\"",
                   "--set a.w: of '1\t#2' YAML reads '1' only; put it into quotes of YAML: \"a.w='1\t#2'\""}));
}

TEST_F(Yaml, SetsLayOneValueOverTheRecipe) {
  const auto tree = read("a: {x: 1, list: [1, 2], map: {p: 1, q: 2}}\n",
                         {"a.x=[3, 4]", "a.list[1]=5", "a.map={q: 3}", "a.new.deep=1e-5", "a.none="});
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(tree), "{a: {x: [3, 4], list: [1, 5], map: {p: 1, q: 3}, new: {deep: 1e-5}, none: null}}");
  EXPECT_EQ(problems("a: {x: 1}\n", {"a.x", "=3", "x=3", "a..b=1", "a.x[b]=1"}),
            (Lines{"--set a.x: 'a.x' does not say what to set; give it as group.key=value",
                   "--set : '=3' does not say what to set; give it as group.key=value",
                   "--set x: 'x=3' does not say what to set; give it as group.key=value",
                   "--set a..b: a..b: a name is missing; give it as group.key=value",
                   "--set a.x[b]: a.x[b]: expected a number and ']' after '['; give it as group.key=value"}));
}

TEST_F(Yaml, WhatIsWrittenReadsBack) {
  const auto tree =
      read("a: {x: 'null', y: null, z: '', w: \"a: b # c\\n${TESSERA_TEST:-d}\", v: [1e-5, '~'], u: {}, t: []}\n");
  const auto dump = write_yaml(tree);
  const auto again = read(dump);
  EXPECT_EQ(report.problems(), Lines{});
  EXPECT_EQ(text(again), text(tree)) << dump;
  EXPECT_EQ(again.at("a.x")->kind, Value::Kind::scalar);
  EXPECT_EQ(again.at("a.w")->scalar, "a: b # c\nd");
  Value text_itself;
  text_itself.kind = Value::Kind::group;
  text_itself.set("a.x", Value::of("${HOME} and $${HOME}", {}));
  EXPECT_EQ(read(write_yaml(text_itself)).at("a.x")->scalar, "${HOME} and $${HOME}");
}

TEST_F(Yaml, ATextTooLargeForARecipeIsRefusedBeforeItIsParsed) {
  const auto one = [&](const std::string& yaml) {
    const auto all = problems(yaml);
    return all.size() == 1 ? all[0] : text(all.size(), " problems");
  };
  EXPECT_EQ(
      one("a: {b: 1}\nc: {d: '" + std::string(2 << 20, 'x') + "'}\n"),
      "run.yaml:2: this line has 2097162 bytes; at most 1048576 are read; a recipe is a short text; is this another "
      "file?");
  EXPECT_EQ(one(std::string(17 << 20, '\n')), "run.yaml: has more than 16777216 bytes; give the path of a recipe");
  std::string list = "a:\n  b:\n";
  for (int i = 0; i < 200'001; ++i) list += "  - 1\n";
  EXPECT_EQ(one(list),
            "run.yaml:199998: this text has more than 200000 values; a recipe has groups, options and lists");
  EXPECT_EQ(problems("a: {b: 1}\n", {"a.b=" + std::string(2 << 20, 'x')}).size(), 1U);
}

TEST_F(Yaml, AliasesThatExpandWithoutEndAreToldFromAnAnchorThatContainsItself) {
  std::string bomb = "x-0: &x0 [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += text("x-", i, ": &x", i, " [");
    for (int k = 0; k < 8; ++k) bomb += text(k == 0 ? "" : ", ", "*x", i - 1);
    bomb += "]\n";
  }
  const auto expanded = problems(bomb);
  ASSERT_EQ(expanded.size(), 1U);
  EXPECT_NE(expanded[0].find("aliases expand to more than 200000 nodes"), std::string::npos) << expanded[0];
  const auto itself = problems("a: &a\n  b: *a\n");
  ASSERT_EQ(itself.size(), 1U);
  EXPECT_NE(itself[0].find("an anchor may not contain itself"), std::string::npos) << itself[0];
  const auto deep = problems("a: {b: " + std::string(150, '[') + std::string(150, ']') + "}\n");
  ASSERT_EQ(deep.size(), 1U);
  EXPECT_NE(deep[0].find("nested more than 100 deep"), std::string::npos) << deep[0];
}

TEST_F(Yaml, ManyKeysTabsAndDefaultsInsideOfDefaultsAreReadToTheirEnd) {
  std::string keys = "a:\n";
  for (int i = 0; i < 20'000; ++i) keys += text("  k", i, ": 1\n");
  EXPECT_EQ(read(keys).at("a")->fields.size(), 20'000U);
  EXPECT_EQ(problems(keys + "  k0: 1\n"),
            Lines{"run.yaml:20002: 'k0' is given twice, first in line 2; keep one of them"});
  std::string tabs;
  for (int i = 0; i < 2000; ++i) tabs += text("\t\t\t\t\t\t\t\ta", i, ": 1\n");
  EXPECT_EQ(problems(tabs).size(), 2000U);
  std::string nested = "1";
  for (int i = 0; i < 5000; ++i) nested = "${NO_SUCH_NAME:-" + nested + "}";
  const auto refused = problems("a: {b: '" + nested + "'}\n");
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused[0].find("nested more than 100 deep"), std::string::npos) << refused[0].substr(0, 300);
}

TEST(Same, ComparesGroupsByTheirFieldsInAnyOrder) {
  const auto value = [](const char* words) { return parse_yaml(words, "x.yaml"); };
  EXPECT_TRUE(same(value("{a: 1, b: [1, {c: true}]}"), value("b: [1.0, {c: True}]\na: 1e0")));
  EXPECT_FALSE(same(value("{a: 1, b: 2}"), value("{a: 1, b: 3}")));
  EXPECT_FALSE(same(value("{a: 1}"), value("{a: 1, b: 2}")));
  EXPECT_FALSE(same(value("[{lr_mult: 0.5}]"), value("[{lr_mult: 0.1}]")));
}

}  // namespace
}  // namespace tessera::options
