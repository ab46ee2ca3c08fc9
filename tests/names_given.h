#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/file_calls.h"

namespace tessera {

using Names = std::vector<std::string>;

/// Runs `saving` in the working folder. Each time a folder gets its final name, all in it must be stored; so must
/// everything when the tracker gets its name, and at the end. Returns the last parts of the names given, in order.
inline Names names_given(const std::function<void()>& saving) {
  FileCalls calls(".");
  Names given;
  calls.before_rename = [&](const std::filesystem::path& from, const std::filesystem::path& to) {
    given.push_back(to.filename());
    EXPECT_EQ(calls.lost_by_crash(from, true), Names{}) << "when " << to << " gets its name";
    if (given.back().find("latest_checkpointed_iteration") == std::string::npos) return;
    auto lost = calls.lost_by_crash(".");
    std::erase_if(lost, [&](const auto& name) { return std::filesystem::absolute(name) == from; });
    EXPECT_EQ(lost, Names{}) << "when the tracker is written";
  };
  saving();
  EXPECT_EQ(calls.lost_by_crash("."), Names{}) << "at the end";
  EXPECT_GT(calls.syncs(), 0);
  return given;
}

}  // namespace tessera
