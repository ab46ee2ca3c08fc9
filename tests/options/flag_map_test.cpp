#include "framework/options/flag_map.h"

#include <gtest/gtest.h>

#include "framework/options/yaml.h"

namespace tessera {
namespace {

Value converted(const std::vector<std::string>& argv) {
  const auto map =
      FlagMap::from(parse_yaml("--act: {to: model.act, absent: gelu}\n"
                               "--exact: {also: {model.act: gelu_erf}}\n"
                               "--bare: {to: model.bias, value: false, also: {model.act: gelu_erf}}\n",
                               "table"));
  Report report;
  auto recipe = map.convert(argv, {}, report);
  report.must_be_good();
  return recipe;
}

std::string act(const std::vector<std::string>& argv) { return converted(argv).at("model.act")->scalar; }

TEST(FlagMap, WhatAFlagImpliesReplacesWhatIsNotGiven) {
  EXPECT_EQ(act({}), "gelu");
  EXPECT_EQ(act({"--exact"}), "gelu_erf");
  EXPECT_EQ(act({"--bare"}), "gelu_erf");
  EXPECT_EQ(converted({"--bare"}).at("model.bias")->scalar, "false");
}

TEST(FlagMap, WhatAFlagImpliesYieldsToAFlagThatSaysIt) {
  EXPECT_EQ(act({"--exact", "--act", "relu"}), "relu");
  EXPECT_EQ(act({"--act", "relu", "--exact"}), "relu");
}

}  // namespace
}  // namespace tessera
