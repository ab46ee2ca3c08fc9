#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/architecture/checks.h"

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

const FloorPlan three_rooms = {{"base", {"base"}}, {"options", {"base", "options"}}, {"kernels", {"base", "kernels"}}};

std::string joined(const std::vector<std::string>& found) {
  std::string all;
  for (const auto& line : found) all += line + "\n";
  return all;
}

/// "room: other other" from a row "| `room` | other other | what is in it |"; empty for any other line.
std::string room_of_row(const std::string& line) {
  static const std::regex row(R"(^\| `(\w+)` \|((?: \w+)*) \|.*)");
  std::smatch found;
  if (!std::regex_match(line, found, row)) return "";
  return found[1].str() + ":" + (found[2].length() == 0 ? " " : found[2].str());
}

TEST(Architecture, EveryIncludeFollowsTheFloorPlan) {
  EXPECT_EQ(joined(forbidden_includes(read_floor_plan(FLOOR_PLAN), fs::path(SOURCE_DIR) / "framework")), "");
}

TEST(Architecture, TheFloorPlanIsReadWithAllItsRooms) {
  const auto plan = read_floor_plan(FLOOR_PLAN);
  EXPECT_GE(plan.size(), 13u);
  EXPECT_TRUE(plan.at("options").count("base"));
  EXPECT_FALSE(plan.at("base").count("options"));
}

TEST(Architecture, ThePageOfTheFloorPlanIsTheFloorPlan) {
  std::ifstream page(fs::path(SOURCE_DIR) / "docs" / "floor_plan.md");
  std::string told, granted;
  for (std::string line; std::getline(page, line);)
    if (const auto cells = room_of_row(line); !cells.empty()) told += cells + "\n";
  std::ifstream plan(FLOOR_PLAN);
  for (std::string line; std::getline(plan, line);) granted += line + "\n";
  EXPECT_EQ(told, granted);
}

TEST(Architecture, EverySourceIsOnItsShelf) {
  EXPECT_EQ(joined(sources_on_no_shelf(fs::path(SOURCE_DIR) / "framework")), "");
}

TEST(Architecture, NoLineIsUntidy) { EXPECT_EQ(joined(untidy_lines(SOURCE_DIR)), ""); }

TEST(Architecture, TheTopLevelHoldsOnlyTheHouse) { EXPECT_EQ(joined(strangers_at_the_top(SOURCE_DIR)), ""); }

TEST_F(Planted, AnIncludeThatGoesUpIsNamedWithItsLine) {
  plant("options/schema.cpp", "#include <string>\n#include \"framework/kernels/threads.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(three_rooms, root())), "options/schema.cpp:2 may not include kernels/\n");
}

TEST_F(Planted, AnAllowedIncludeIsNotNamed) {
  plant("options/schema.cpp",
        "#include \"framework/base/error.h\"\n#include \"framework/options/value.h\"\n#include <yaml-cpp/yaml.h>\n");
  EXPECT_EQ(joined(forbidden_includes(three_rooms, root())), "");
}

TEST_F(Planted, AShortcutPastTheRoomsIsNamed) {
  plant("options/schema.cpp", "#include \"../kernels/threads.h\"\n");
  EXPECT_EQ(
      joined(forbidden_includes(three_rooms, root())),
      "options/schema.cpp:1 includes \"../kernels/threads.h\"; a file of ours is named \"framework/room/file.h\"\n");
}

TEST_F(Planted, ALibraryOfAnotherRoomIsNamed) {
  plant("base/text.h", "#include <yaml-cpp/yaml.h>\n");
  EXPECT_EQ(joined(forbidden_includes(three_rooms, root())),
            "base/text.h:1 may not include <yaml-cpp/yaml.h>; only options/ may\n");
}

TEST_F(Planted, ARoomThatThePlanDoesNotKnowIsNamed) {
  plant("attic/box.h", "#include \"framework/base/error.h\"\n");
  EXPECT_EQ(joined(forbidden_includes(three_rooms, root())),
            "attic/box.h:1 stands in a room that framework/CMakeLists.txt does not name\n");
}

TEST_F(Planted, AForgottenSourceIsNamed) {
  plant("optim/adamw.cpp", "void register_adamw(OptimizerRegistry& shelf) { shelf.add(\"adamw\"); }\n");
  plant("optim/sgd.cpp", "void register_sgd(OptimizerRegistry& shelf) { shelf.add(\"sgd\"); }\n");
  plant("optim/catalog.cpp", "void fill(OptimizerRegistry& shelf) {\n  register_sgd(shelf);\n}\n");
  EXPECT_EQ(joined(sources_on_no_shelf(root())),
            "optim/adamw.cpp is on no shelf: catalog.cpp does not call register_adamw\n");
}

TEST_F(Planted, UntidyLinesAreNamed) {
  plant("docs/page.md",
        "fine\ntwo blanks  \nsee /ho"
        "me/somebody/x\n");
  plant("framework/base/text.h",
        "int x;  // TO"
        "DO\n\tint y;\nint z;");
  EXPECT_EQ(joined(untidy_lines(root())),
            "docs/page.md:2: trailing blanks\ndocs/page.md:3: a path of one machine\n"
            "framework/base/text.h:1: a mark of unfinished work; finish it or say in words what is missing\n"
            "framework/base/text.h:2: a tab\nframework/base/text.h: no newline at the end\n");
}

TEST_F(Planted, AStrangerAtTheTopIsNamed) {
  plant("framework/base/text.h", "");
  plant("notes.txt", "");
  plant("build/x", "");
  EXPECT_EQ(joined(strangers_at_the_top(root())), "notes.txt\n");
}

}  // namespace
}  // namespace tessera::architecture
