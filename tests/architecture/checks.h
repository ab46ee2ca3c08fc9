#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tessera::architecture {

/// The components that each component may include, itself among them.
using Components = std::map<std::string, std::set<std::string>>;

/// Reads the lines `component: other other` that CMake writes from framework/CMakeLists.txt.
Components read_components(const std::filesystem::path& file);

/// Each include under `framework` that `components` does not allow, as "options/schema.cpp:3 may not include optim/",
/// and each of another form than "framework/component/file.h". An external library that only one component may use
/// (yaml-cpp, BLAS, MPI, ...) is checked too.
std::vector<std::string> forbidden_includes(const Components& components, const std::filesystem::path& framework);

/// Each source that defines `register_x(...& registry)` which its component's catalog.cpp does not call.
std::vector<std::string> unregistered_sources(const std::filesystem::path& framework);

/// Lines of sources under `framework` and `launch` that write to standard output or standard error beside the log,
/// except std::cout in the files of `result_writers`, which print a command's own result. As
/// "framework/comm/world.cpp:3: ...".
std::vector<std::string> writes_beside_the_log(const std::filesystem::path& root,
                                               const std::set<std::string>& result_writers);

/// Sources under `framework` and `launch` that include <regex>: std::regex recurses for each character, so that a long
/// line of input overflows the stack. As "framework/data/x.cpp:3: ...".
std::vector<std::string> uses_of_std_regex(const std::filesystem::path& root);

/// Raw strings of more than four lines in sources of the components that are not below interop/ and not cli: texts of
/// another program's format belong to mappings/. As "data/x.cpp:3: ...".
std::vector<std::string> texts_in_the_core(const Components& components, const std::filesystem::path& framework);

/// Lines that must not be in the tree: marks of unfinished work, absolute paths of one machine, tabs, trailing blanks,
/// comments of more than 120 columns, a missing newline at the end, a source of more than 500 lines. As "docs/x.md:7:
/// trailing blanks".
std::vector<std::string> untidy_lines(const std::filesystem::path& root);

/// Unexpected names at the top level of the tree. Build and run folders that git ignores are not reported.
std::vector<std::string> unexpected_at_the_top(const std::filesystem::path& root);

}  // namespace tessera::architecture
