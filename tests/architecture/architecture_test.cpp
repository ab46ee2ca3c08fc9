#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/architecture/checks.h"
#include "tests/architecture/folders.h"

namespace tessera::architecture {
namespace {

namespace fs = std::filesystem;

/// A tree of its own, for planting what the checks must find.
class Planted : public testing::Test {
 protected:
  Planted() {
    auto name = testing::TempDir() + "planted.XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Planted() override { fs::remove_all(root_); }

  void plant(const std::string& file, const std::string& words) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << words;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

const Components three_components = {
    {"base", {"base"}}, {"options", {"base", "options"}}, {"kernels", {"base", "kernels"}}};

std::string joined(const std::vector<std::string>& found) {
  std::string all;
  for (const auto& line : found) all += line + "\n";
  return all;
}

/// "component: other other" from a row "| `component` | other other | what is in it |"; empty for any other line.
std::string component_of_row(const std::string& line) {
  static const std::regex row(R"(^\| `(\w+(?:/\w+)?)` \|((?: [\w/]+)*) \|.*)");
  std::smatch found;
  if (!std::regex_match(line, found, row)) return "";
  return found[1].str() + ":" + (found[2].length() == 0 ? " " : found[2].str());
}

TEST(Architecture, EveryIncludeIsAllowed) {
  EXPECT_EQ(joined(forbidden_includes(read_components(COMPONENTS), fs::path(SOURCE_DIR) / "framework")), "");
}

TEST(Architecture, NoFoldersIncludeEachOther) { EXPECT_EQ(joined(includes_in_a_cycle_of_folders(SOURCE_DIR)), ""); }

TEST(Architecture, EveryIncludeBesideTheFrameworkIsAllowed) {
  EXPECT_EQ(joined(forbidden_includes_beside_the_framework(SOURCE_DIR)), "");
}

TEST(Architecture, AllComponentsAreRead) {
  const auto plan = read_components(COMPONENTS);
  EXPECT_GE(plan.size(), 13u);
  EXPECT_TRUE(plan.at("options").count("base"));
  EXPECT_FALSE(plan.at("base").count("options"));
}

TEST(Architecture, NoComponentOfTheCoreIncludesOneOfInterop) {
  int core = 0;
  for (const auto& [component, allowed] : read_components(COMPONENTS)) {
    if (component.rfind("interop/", 0) == 0 || component == "cli") continue;
    ++core;
    for (const auto& other : allowed) EXPECT_NE(other.rfind("interop/", 0), 0U) << component << " includes " << other;
  }
  EXPECT_GE(core, 15);
}

TEST(Architecture, NoSourceOfTheCoreHasATableOfAnotherProgram) {
  EXPECT_EQ(joined(texts_in_the_core(read_components(COMPONENTS), fs::path(SOURCE_DIR) / "framework")), "");
}

TEST(Architecture, ThePageOfTheArchitectureListsTheSameComponents) {
  std::ifstream page(fs::path(SOURCE_DIR) / "docs" / "architecture.md");
  std::string told, granted;
  for (std::string line; std::getline(page, line);)
    if (const auto cells = component_of_row(line); !cells.empty()) told += cells + "\n";
  std::ifstream plan(COMPONENTS);
  for (std::string line; std::getline(plan, line);) granted += line + "\n";
  EXPECT_EQ(told, granted);
}

TEST(Architecture, EverySourceIsRegistered) {
  EXPECT_EQ(joined(unregistered_sources(fs::path(SOURCE_DIR) / "framework")), "");
}

/// Commands that print their result to standard output, and the object through which they do; tsrun echoes the logs of
/// its workers there.
const std::set<std::string> result_writers = {"framework/base/standard_output.cpp",
                                              "framework/cli/check.cpp",
                                              "framework/cli/checkpoint_commands.cpp",
                                              "framework/cli/checkpoint_list.cpp",
                                              "framework/cli/completion.cpp",
                                              "framework/cli/convert.cpp",
                                              "framework/cli/convert_checkpoint.cpp",
                                              "framework/cli/data_inspect.cpp",
                                              "framework/cli/data_llava_to_mllm.cpp",
                                              "framework/cli/data_merge.cpp",
                                              "framework/cli/data_preprocess.cpp",
                                              "framework/cli/data_render_chat.cpp",
                                              "framework/cli/data_show.cpp",
                                              "framework/cli/data_to_jsonl.cpp",
                                              "framework/cli/data_checksum.cpp",
                                              "framework/cli/data_train_bpe.cpp",
                                              "framework/cli/diff.cpp",
                                              "framework/cli/doctor.cpp",
                                              "framework/cli/eval.cpp",
                                              "framework/cli/explain.cpp",
                                              "framework/cli/export.cpp",
                                              "framework/cli/generate.cpp",
                                              "framework/cli/layout_report.cpp",
                                              "framework/cli/manual.cpp",
                                              "framework/cli/merge.cpp",
                                              "framework/cli/mm_convert.cpp",
                                              "framework/cli/options.cpp",
                                              "framework/cli/report.cpp",
                                              "framework/cli/reshard_checkpoint.cpp",
                                              "framework/cli/state.cpp",
                                              "framework/cli/train.cpp",
                                              "framework/cli/transformers_folder.cpp",
                                              "framework/log/log.cpp",
                                              "framework/options/planned_table/main.cpp",
                                              "launch/tsrun/follower.cpp",
                                              "launch/tsrun/leader.cpp",
                                              "launch/tsrun/job.cpp",
                                              "launch/tsrun/main.cpp"};

TEST(Architecture, MessagesGoThroughTheLog) {
  EXPECT_EQ(joined(writes_beside_the_log(SOURCE_DIR, result_writers)), "");
  for (const auto& file : result_writers)
    EXPECT_TRUE(fs::exists(fs::path(SOURCE_DIR) / file)) << file << " is no longer there: take it from the list";
}

TEST(Architecture, NoSourceUsesStdRegex) { EXPECT_EQ(joined(uses_of_std_regex(SOURCE_DIR)), ""); }

TEST(Architecture, NoLineIsUntidy) { EXPECT_EQ(joined(untidy_lines(SOURCE_DIR)), ""); }

TEST(Architecture, TheTopLevelHasOnlyKnownNames) { EXPECT_EQ(joined(unexpected_at_the_top(SOURCE_DIR)), ""); }

TEST_F(Planted, AnIncludeThatGoesUpIsNamedWithItsLine) {
  plant("options/schema.cpp", "#include <string>\n#include \"framework/kernels/threads.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())), "options/schema.cpp:2 may not include kernels/\n");
}

TEST_F(Planted, TheComponentOfAFileIsTheLongestFolderThatIsOne) {
  const Components nested = {
      {"base", {"base"}}, {"interop/shell", {"interop/shell", "base"}}, {"cli", {"cli", "interop/shell"}}};
  plant("base/text.h", "#include \"framework/interop/shell/reader.h\"\n");
  plant("cli/foreign/read.cpp", "#include \"framework/interop/shell/reader.h\"\n#include \"framework/base/text.h\"\n");
  plant("interop/shell/reader.h", "#include \"framework/cli/foreign/read.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(nested, root())),
            "base/text.h:1 may not include interop/shell/\n"
            "cli/foreign/read.cpp:2 may not include base/\n"
            "interop/shell/reader.h:1 may not include cli/\n");
}

TEST_F(Planted, AnAllowedIncludeIsNotNamed) {
  plant("options/schema.cpp",
        "#include \"framework/base/error.h\"\n#include \"framework/options/value.h\"\n#include <yaml-cpp/yaml.h>\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())), "");
}

TEST_F(Planted, AnIncludeByRelativePathIsNamed) {
  plant("options/schema.cpp", "#include \"../kernels/threads.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())),
            "options/schema.cpp:1 includes \"../kernels/threads.h\"; a file of ours is named "
            "\"framework/component/file.h\"\n");
}

TEST_F(Planted, ALibraryOfAnotherComponentIsNamed) {
  plant("base/text.h", "#include <yaml-cpp/yaml.h>\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())),
            "base/text.h:1 may not include <yaml-cpp/yaml.h>; only options/ may\n");
}

TEST_F(Planted, ALibraryOfTwoComponentsOrOfNoneIsNamed) {
  plant("kernels/a.cpp", "#include <zlib.h>\n#include <hwloc.h>\n#include <nlohmann/json.hpp>\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())),
            "kernels/a.cpp:1 may not include <zlib.h>; only files/ and parquet/ may\n"
            "kernels/a.cpp:2 may not include <hwloc.h>; only launch/ may\n"
            "kernels/a.cpp:3 may not include <nlohmann/json.hpp>; only tests/ may\n");
}

TEST_F(Planted, EachIncludeOfACycleOfFoldersIsNamed) {
  plant("framework/data/loader.h", "#include \"framework/data/gpt/index.h\"\n#include \"framework/base/text.h\"\n");
  plant("framework/data/gpt/index.h", "#include <map>\n#include \"framework/data/gpt/md5.h\"\n");
  plant("framework/data/gpt/md5.h", "#include \"framework/data/files/read.h\"\n");
  plant("framework/data/files/read.cpp", "#include \"framework/data/loader.h\"\n");
  plant("tests/data/loader_test.cpp", "#include \"framework/data/loader.h\"\n#include \"tests/own/folder.h\"\n");
  plant("tests/own/folder.h", "#include \"tests/data/files.h\"\n");
  EXPECT_EQ(
      joined(includes_in_a_cycle_of_folders(root())),
      "framework/data/files/read.cpp:1 includes framework/data/loader.h, whose folder includes framework/data/files\n"
      "framework/data/gpt/md5.h:1 includes framework/data/files/read.h, whose folder includes framework/data/gpt\n"
      "framework/data/loader.h:1 includes framework/data/gpt/index.h, whose folder includes framework/data\n"
      "tests/data/loader_test.cpp:2 includes tests/own/folder.h, whose folder includes tests/data\n"
      "tests/own/folder.h:1 includes tests/data/files.h, whose folder includes tests/own\n");
}

TEST_F(Planted, AnIncludeBesideTheFrameworkThatIsNotAllowedIsNamed) {
  plant("launch/tsrun/job.cpp", "#include <sys/wait.h>\n#include <openssl/hmac.h>\n#include <simdjson/dom.h>\n");
  plant("launch/tsrun/main.cpp", "#include \"tests/own_folder.h\"\n#include \"framework/base/text.h\"\n");
  plant("benchmarks/steps.cpp", "#include \"launch/tsrun/job.h\"\n#include <mpi.h>\n");
  plant("tests/base/text_test.cpp", "#include \"own_folder.h\"\n#include \"launch/tsrun/job.h\"\n");
  EXPECT_EQ(
      joined(forbidden_includes_beside_the_framework(root())),
      "benchmarks/steps.cpp:1 may not include launch/\n"
      "launch/tsrun/job.cpp:3 may not include <simdjson/dom.h>\n"
      "launch/tsrun/main.cpp:1 may not include tests/\n"
      "tests/base/text_test.cpp:1 includes \"own_folder.h\"; a file of ours is named by its path from the root\n");
}

TEST_F(Planted, AnUnknownComponentIsNamed) {
  plant("attic/box.h", "#include \"framework/base/error.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(three_components, root())),
            "attic/box.h:1 is in a component that framework/CMakeLists.txt does not name\n");
}

TEST_F(Planted, AnUnregisteredSourceIsNamed) {
  plant("optim/adamw.cpp", "void register_adamw(OptimizerRegistry& registry) { registry.add(\"adamw\"); }\n");
  plant("optim/sgd.cpp", "void register_sgd(OptimizerRegistry& registry) { registry.add(\"sgd\"); }\n");
  plant("optim/catalog.cpp", "void fill(OptimizerRegistry& registry) {\n  register_sgd(registry);\n}\n");
  EXPECT_EQ(joined(unregistered_sources(root())),
            "optim/adamw.cpp is not registered: catalog.cpp does not call register_adamw\n");
}

TEST_F(Planted, AnUnregisteredSourceOfATypeOfAnotherComponentIsNamed) {
  plant("gpt/mock.cpp", "void register_mock(data::DatasetRegistry& registry) { registry.add(\"mock\"); }\n");
  plant("gpt/catalog.cpp", "");
  EXPECT_EQ(joined(unregistered_sources(root())),
            "gpt/mock.cpp is not registered: catalog.cpp does not call register_mock\n");
}

TEST_F(Planted, ALongTextInTheCoreIsNamed) {
  plant("options/text.cpp", "int x;\nconst char* s = R\"(a\nb\nc\nd\ne)\";\nconst char* t = R\"x(a\n)x\";\n");
  const Components components = {{"options", {"options"}}, {"interop/flags", {"interop/flags"}}};
  plant("interop/flags/text.cpp", "const char* s = R\"(a\nb\nc\nd\ne)\";\n");
  EXPECT_EQ(joined(texts_in_the_core(components, root())),
            "options/text.cpp:2: a long text; another program's table belongs to mappings/\n");
}

TEST_F(Planted, UntidyLinesAreNamed) {
  plant("docs/page.md",
        "fine\ntwo blanks  \nsee /ho"
        "me/somebody/x\n");
  plant("framework/base/text.h",
        "int x;  // TO"
        "DO\n\tint y;\nint z;");
  plant("framework/base/wide.h", "  // " + std::string(116, 'x') + "\n// " + std::string(117, 'x') + "\n");
  EXPECT_EQ(joined(untidy_lines(root())),
            "docs/page.md:2: trailing blanks\ndocs/page.md:3: a path of one machine\n"
            "framework/base/text.h:1: a mark of unfinished work; finish it or say in words what is missing\n"
            "framework/base/text.h:2: a tab\nframework/base/text.h: no newline at the end\n"
            "framework/base/wide.h:1: a comment of more than 120 columns\n");
}

TEST_F(Planted, AWriteBesideTheLogIsNamed) {
  plant("framework/cli/show.cpp", "void f() { std::cout << 1; }\nvoid g() { std::cerr << 1; }\n");
  plant("launch/tsrun/job.cpp",
        "// std::cerr is not used\nint n = std::snprintf(b, 1, \"x\");\nvoid f() { printf(b); }\n");
  EXPECT_EQ(joined(writes_beside_the_log(root(), {"framework/cli/show.cpp"})),
            "framework/cli/show.cpp:2: writes beside the log; use a Logger (log/log.h)\n"
            "launch/tsrun/job.cpp:3: writes beside the log; use a Logger (log/log.h)\n");
}

TEST_F(Planted, AUseOfStdRegexIsNamedWithItsLine) {
  plant("framework/data/read.cpp", "#include <map>\n#include <regex>\n");
  plant("launch/tsrun/job.cpp", "// no #include <regex>\n");
  EXPECT_EQ(
      joined(uses_of_std_regex(root())),
      "framework/data/read.cpp:2: std::regex overflows the stack on long input; parse by hand, or use our Regex\n");
}

TEST_F(Planted, AnUnexpectedNameAtTheTopIsNamed) {
  plant("framework/base/text.h", "");
  plant("notes.txt", "");
  plant("build/x", "");
  EXPECT_EQ(joined(unexpected_at_the_top(root())), "notes.txt\n");
}

}  // namespace
}  // namespace tessera::architecture
