#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tessera::architecture {

/// Which rooms each room may include, itself among them.
using FloorPlan = std::map<std::string, std::set<std::string>>;

/// Read the lines `room: other other` that CMake writes from framework/CMakeLists.txt.
FloorPlan read_floor_plan(const std::filesystem::path& file);

/// Each include under `framework` that the plan does not allow, as "options/schema.cpp:3 may not include optim/", and
/// each of another form than "framework/room/file.h". A foreign library that belongs to one room (yaml-cpp, BLAS, MPI,
/// ...) is held to it.
std::vector<std::string> forbidden_includes(const FloorPlan& plan, const std::filesystem::path& framework);

/// Each source that defines `register_x(... shelf)` while the catalog.cpp beside it does not call it.
std::vector<std::string> sources_on_no_shelf(const std::filesystem::path& framework);

/// What a reader should not meet in the tree: marks of unfinished work, paths of somebody's machine, tabs, trailing
/// blanks, a missing last newline, a source of more than 500 lines. As "docs/x.md:7: trailing blanks".
std::vector<std::string> untidy_lines(const std::filesystem::path& root);

/// Names at the top level of the tree that the house has no place for. Build and run folders that git ignores are no
/// part of it.
std::vector<std::string> strangers_at_the_top(const std::filesystem::path& root);

}  // namespace tessera::architecture
