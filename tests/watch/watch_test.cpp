#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <random>

#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/utf8.h"
#include "framework/watch/braille.h"
#include "framework/watch/chart.h"
#include "framework/watch/find_runs.h"
#include "framework/watch/plain.h"
#include "framework/watch/screen.h"
#include "framework/watch/state_words.h"
#include "framework/watch/terminal.h"
#include "framework/watch/view.h"
#include "tests/own_folder.h"

namespace tessera::watch {
namespace {

std::string all_lines(const Screen& screen) {
  std::string words;
  for (int row = 0; row < screen.rows(); ++row) words += screen.line(row) + "\n";
  return words;
}

/// Whether `words` has a control character other than a line break.
bool has_control(std::string_view words) {
  for (std::size_t i = 0; i < words.size();) {
    const auto step = utf8_step(words, i);
    if (!step.valid || (step.code < 32 && step.code != '\n') || (step.code >= 0x7F && step.code < 0xA0)) return true;
    i += step.length;
  }
  return false;
}

/// A terminal that knows what Screen::difference writes.
class Interpreter {
 public:
  Interpreter(int columns, int rows) : screen_(columns, rows) {}
  void write(const std::string& bytes) {
    for (std::size_t i = 0; i < bytes.size();) {
      if (bytes[i] == '\x1b') {
        const auto end = bytes.find_first_of("HJm", i);
        const auto words = bytes.substr(i + 2, end - i - 2);
        if (bytes[end] == 'H') {
          row_ = std::stoi(words) - 1;
          column_ = std::stoi(words.substr(words.find(';') + 1)) - 1;
        } else if (bytes[end] == 'J') {
          screen_ = Screen(screen_.columns(), screen_.rows());
        }
        i = end + 1;
        continue;
      }
      const auto end = std::min(bytes.find('\x1b', i), bytes.size());
      column_ = screen_.put(row_, column_, bytes.substr(i, end - i));
      i = end;
    }
  }
  std::string words() const { return all_lines(screen_); }

 private:
  Screen screen_;
  int row_ = 0, column_ = 0;
};

TEST(Screen, ShowsControlCharactersByTheirNumber) {
  const auto line = safe_line(
      "a\x1b]0;title\x07\n\t\x9b"
      "31m\xE2\x80\xAE"
      "b\xFF");
  EXPECT_FALSE(has_control(line)) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find("\\u001b]0;title"), std::string::npos) << line;
  EXPECT_EQ(line.find("\xE2\x80\xAE"), std::string::npos) << line;
}

TEST(Screen, CutsTextAtItsEndAlsoWithinAWideCharacter) {
  Screen screen(5, 2);
  EXPECT_EQ(screen.put(0, 0, "ab\xE4\xB8\xAD\xE6\x96\x87"), 4);
  EXPECT_EQ(screen.line(0), "ab\xE4\xB8\xAD");
  EXPECT_EQ(screen.put(0, 3, "x"), 4) << "over the right half";
  EXPECT_EQ(screen.line(0), "ab x");
  EXPECT_EQ(screen.put(1, 0, "e\xCC\x81|"), 2) << "a combining mark takes no column";
  EXPECT_EQ(screen.line(1), "e\xCC\x81|");
  EXPECT_EQ(screen.put(7, 0, "out"), 0);
}

TEST(Screen, TheDifferenceMakesATerminalShowTheScreen) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const std::vector<std::string> words = {
      "a", "loss ", "\xE4\xB8\xAD\xE6\x96\x87", "\xE2\xA3\xBF", "e\xCC\x81", "1234567890", " "};
  for (int trial = 0; trial < 50; ++trial) {
    const int columns = 1 + static_cast<int>(random() % 30), rows = 1 + static_cast<int>(random() % 8);
    Interpreter terminal(columns, rows);
    Screen before(columns, rows), screen(columns, rows);
    terminal.write(screen.difference(nullptr, true));
    for (int step = 0; step < 10; ++step) {
      before = screen;
      for (int i = 0; i < 4; ++i)
        screen.put(static_cast<int>(random()) % rows, static_cast<int>(random() % static_cast<unsigned>(columns)),
                   words[random() % words.size()], {static_cast<std::uint8_t>(random() % 7)});
      terminal.write(screen.difference(&before, true));
      ASSERT_EQ(terminal.words(), all_lines(screen));
    }
  }
}

TEST(Screen, TheDifferenceOfEqualScreensIsEmptyAndOfOneCellShort) {
  Screen before(80, 24);
  before.put(3, 3, "loss 2.5");
  auto screen = before;
  EXPECT_EQ(screen.difference(&before, true), "");
  screen.put(3, 8, "2.4");
  EXPECT_EQ(screen.difference(&before, true), "\x1b[4;11H4");
  screen.put(3, 8, "2.4", {3});
  EXPECT_EQ(screen.difference(&before, false).find(";33"), std::string::npos) << "no colors";
}

TEST(Braille, HasTheBitOfEachDot) {
  Braille canvas(1, 1);
  EXPECT_EQ(canvas.cell(0, 0), "");
  canvas.dot(0, 0);
  EXPECT_EQ(canvas.cell(0, 0), "\xE2\xA0\x81");
  canvas.dot(1, 3);
  EXPECT_EQ(canvas.cell(0, 0), "\xE2\xA2\x81");
  canvas.line(0, 0, 1, 0);
  canvas.line(0, 0, 0, 3);
  canvas.line(1, 0, 1, 3);
  EXPECT_EQ(canvas.cell(0, 0), "\xE2\xA3\xBF");
  canvas.dot(2, 0);
  canvas.dot(-1, 0);
}

/// The row of the area in which a spike of one of many points is drawn.
TEST(Chart, ShowsASpikeOfOneOfAMillionPoints) {
  runs::Curve curve;
  for (int i = 0; i < 1000000; ++i) curve.add(i, i == 500001 ? 100.0 : 1.0);
  Screen screen(60, 12);
  draw_chart(screen, {0, 0, 12, 60}, {"loss", {{&curve, "A", false, {}}}, false, 0});
  EXPECT_EQ(screen.line(0), "loss");
  EXPECT_EQ(screen.line(1).substr(0, 3), "100");
  EXPECT_NE(screen.line(1).find("\xE2\xA1"), std::string::npos) << all_lines(screen);
  EXPECT_EQ(screen.line(10).substr(0, 1), "1");
}

TEST(Chart, ALongTitleLeavesABlankBeforeTheNextChart) {
  runs::Curve curve;
  curve.add(1, 1.0);
  Screen screen(40, 6);
  Chart chart;
  chart.title = "a title that has thirty letters";
  chart.lines.push_back({&curve, "A", false, {}});
  for (const int column : {0, 20}) draw_chart(screen, {0, column, 6, 20}, chart);
  EXPECT_EQ(screen.line(0), "a title that has th a title that has th");
}

TEST(Chart, DrawsExtremeAndMissingValues) {
  runs::Curve curve;
  curve.add(1, 1e308);
  curve.add(2, std::nan(""));
  curve.add(3, -1e308);
  curve.add(4, std::numeric_limits<double>::infinity());
  for (const bool logarithmic : {false, true})
    for (int columns = 1; columns < 40; columns += 3)
      for (int rows = 1; rows < 12; ++rows) {
        Screen screen(40, 12);
        draw_chart(screen, {0, 0, rows, columns}, {"x", {{&curve, "A", false, {}}}, logarithmic, 0});
      }
  Screen screen(60, 12);
  draw_chart(screen, {0, 0, 12, 60}, {"x", {{&curve, "A", false, {}}}, false, 0});
  EXPECT_EQ(screen.line(0), "x (2 not finite)");
}

TEST(Keys, AreTakenOneByOneAlsoUnknownSequences) {
  std::string bytes = "\x1b[C\x1b[15~q?/\x7f\r\xC3\xBC\x1b";
  const std::vector<std::pair<Key, std::string>> expected = {
      {Key::next_chart, ""}, {Key::other, ""},     {Key::quit, "q"},         {Key::help, "?"}, {Key::filter, "/"},
      {Key::erase, ""},      {Key::one_chart, ""}, {Key::other, "\xC3\xBC"}, {Key::escape, ""}};
  for (const auto& [key, typed] : expected) {
    const auto press = take_key(bytes);
    ASSERT_TRUE(press);
    EXPECT_EQ(press->key, key);
    EXPECT_EQ(press->text, typed);
  }
  EXPECT_FALSE(take_key(bytes));
}

class WatchTest : public InOwnFolder {
 protected:
  static void append(const std::string& name, const std::string& words) {
    std::ofstream(name, std::ios::app | std::ios::binary) << words;
  }
  static std::string row(int iteration) {
    return text("{\"iteration\": ", iteration, ", \"loss\": ", 5.0 / iteration,
                ", \"grad_norm\": 1.5, \"memory_bytes\": ",
                "4194304, \"weight_bytes\": 3145728, \"optimizer_bytes\": 1048576, \"step_seconds\": 0.5}\n");
  }
  /// A run folder, and its reader after one look.
  static std::unique_ptr<runs::RunReader> run(const std::string& name, int rows, const std::string& events) {
    std::filesystem::create_directory(name);
    for (int i = 1; i <= rows; ++i) append(name + "/metrics.jsonl", row(i));
    append(name + "/events.jsonl", events);
    auto reader = std::make_unique<runs::RunReader>(name);
    reader->refresh();
    return reader;
  }
  static std::string shown(const View& view, int columns, int rows) {
    Screen screen(columns, rows);
    view.draw(screen, wall_time());
    return all_lines(screen);
  }
};

const char* const hostile =
    "{\"time\": 5, \"event\": \"note\", \"iteration\": 3, \"message\": \"\\u001b[2J\\u009b0m\\u202e evil\"}\n";

TEST_F(WatchTest, FitsEverySizeAndIsSafe) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 random(seed);
  const auto one = run("one", 40, hostile), two = run("two\x1b[31m", 7, ""), three = run("three", 0, "");
  View view({one.get(), two.get(), three.get()});
  view.set_log({"a log line \x1b[31m", "\xFF\xFE"});
  for (int trial = 0; trial < 300; ++trial) {
    Screen screen(1 + static_cast<int>(random() % 150), 1 + static_cast<int>(random() % 60));
    view.draw(screen, wall_time());
    const auto words = all_lines(screen);
    ASSERT_FALSE(has_control(words)) << words;
    // All keys but quit.
    const auto key = static_cast<Key>(random() % (static_cast<unsigned>(Key::erase) + 1));
    if (key != Key::quit) view.take({key, random() % 3 == 0 ? "o" : ""});
  }
}

TEST_F(WatchTest, ShowsARunIn80x24) {
  const auto one =
      run("one", 40, "{\"time\": 5, \"event\": \"saved\", \"iteration\": 30, \"path\": \"checkpoints/iter_30\"}\n");
  View view({one.get()});
  view.set_log({"the last log line"});
  const auto words = shown(view, 80, 24);
  for (const char* part :
       {"one", "iteration 40", "loss 0.125", "grad_norm 1.5", "learning_rate", "tokens_per_second",
        "saved  checkpoints/iter_30", "memory of rank 0: 4 MiB", "weights", "the last log line", "? keys"})
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
}

TEST_F(WatchTest, TellsRunsApartByLetterAndSaysTheSelectedOne) {
  const auto one = run("one", 40, ""), two = run("two", 20, ""), none = run("none", 0, "");
  View view({one.get(), two.get(), none.get()});
  EXPECT_NE(shown(view, 80, 24).find("> A one"), std::string::npos);
  EXPECT_NE(shown(view, 80, 24).find("C none  loss nan  iteration 0  not begun"), std::string::npos)
      << shown(view, 80, 24);
  view.take({Key::down});
  const auto words = shown(view, 80, 24);
  EXPECT_NE(words.find("> B two"), std::string::npos) << words;
  EXPECT_EQ(words.substr(0, 5), "B two");
  view.take({Key::help});
  EXPECT_NE(shown(view, 80, 24).find("quit"), std::string::npos);
}

TEST_F(WatchTest, ShowsOnlyCurvesWhoseNameHasTheTypedText) {
  const auto one = run("one", 40, "");
  View view({one.get()});
  const auto type = [&view](std::string words) {
    while (const auto press = take_key(words)) EXPECT_TRUE(view.take(*press));
    return shown(view, 80, 24);
  };
  auto words = type("/BYTEq");
  EXPECT_NE(words.find("no curve has \"BYTEq\" in its name"), std::string::npos) << words;
  words = type("\x7fS");
  EXPECT_NE(words.find("curves with: BYTES_"), std::string::npos) << words;
  for (const char* key : {"memory_bytes 4194304", "weight_bytes", "optimizer_bytes"})
    EXPECT_NE(words.find(key), std::string::npos) << key << "\n" << words;
  EXPECT_EQ(words.find("grad_norm"), std::string::npos) << words;
  words = type("\rl");
  EXPECT_NE(words.find("weight_bytes 3145728, log scale"), std::string::npos) << "keys work again:\n" << words;
  words = type("/\x1b");
  EXPECT_NE(words.find("grad_norm"), std::string::npos) << words;
  EXPECT_NE(type("?").find("filter curves by name"), std::string::npos);
}

TEST_F(WatchTest, ShowsAllKeysAlsoInTheSmallestTerminal) {
  const auto one = run("one", 1, "");
  View view({one.get()});
  view.take({Key::help});
  const auto words = shown(view, 40, 10);
  for (const char* part :
       {"quit", "show or hide the keys", "choose the first chart", "choose the run", "one chart or four", "log scale",
        "fewer, more, all steps", "filter curves by name", "show all curves"})
    EXPECT_NE(words.find(part), std::string::npos) << part << "\n" << words;
}

TEST_F(WatchTest, SaysWhenTheTerminalIsTooSmall) {
  const auto one = run("one", 3, "{\"time\": 5, \"event\": \"finished\", \"iteration\": 3}\n");
  EXPECT_EQ(shown(View({one.get()}), 10, 5), "finished\ntoo small\n40x10 or\n--plain\n\n");
  EXPECT_NE(shown(View({one.get()}), 40, 10).find("iteration 3"), std::string::npos);
}

TEST_F(WatchTest, SaysTheRootCauseAndThatTheRunWentBack) {
  const auto died = run("died", 9,
                        "{\"time\": 5, \"event\": \"start\", \"iteration\": 0}\n"
                        "{\"time\": 6, \"event\": \"saved\", \"iteration\": 9}\n"
                        "{\"time\": 7, \"event\": \"start\", \"iteration\": 4}\n"
                        "{\"time\": 8, \"event\": \"failed\", \"iteration\": 9, \"message\": \"the disk is full\"}\n");
  const auto words = shown(View({died.get()}), 80, 24);
  EXPECT_NE(words.find("died: "), std::string::npos) << words;
  EXPECT_NE(words.find("the disk is full"), std::string::npos) << words;
  EXPECT_NE(words.find("resumed at iteration 4 after 9"), std::string::npos) << words;
}

TEST_F(WatchTest, AnEventThatDoesNotTellItsIterationIsShownWithoutOne) {
  const auto one = run("one", 9,
                       "{\"time\": 5, \"event\": \"start\", \"iteration\": 4}\n"
                       "{\"time\": 6, \"event\": \"failed\", \"message\": \"no memory\"}\ndamaged\n"
                       "{\"time\": 7, \"event\": \"start\"}\n");
  EXPECT_EQ(event_words(one->events().all()[0]), "iteration 4  start  ");
  EXPECT_EQ(event_words(one->events().all()[1]), "failed  no memory");
  EXPECT_EQ(went_back_words(*one), "") << "it is not known to have started at iteration 0";
  EXPECT_NE(shown(View({one.get()}), 80, 24).find("iteration 9, 1 damaged lines"), std::string::npos);
}

TEST_F(WatchTest, PlainLinesComeOnceForEachStepAndEvent) {
  std::filesystem::create_directory("run");
  PlainReport report("run", "");
  EXPECT_EQ(report.news(wall_time(), 20), "state: not begun: no step is logged yet\n");
  append("run/metrics.jsonl", row(1) + row(2));
  const auto news = report.news(wall_time(), 20);
  EXPECT_NE(news.find("iteration 1  loss 5  gradient norm 1.5\niteration 2  loss 2.5"), std::string::npos) << news;
  EXPECT_EQ(report.news(wall_time(), 20), "");
  append("run/events.jsonl", hostile);
  const auto event = report.news(wall_time(), 20);
  EXPECT_NE(event.find("iteration 3  note  "), std::string::npos) << event;
  EXPECT_FALSE(has_control(event));
  EXPECT_EQ(report.news(wall_time(), 20), "");
  // An evaluation adds a member to the last object.
  std::filesystem::resize_file("run/metrics.jsonl", std::filesystem::file_size("run/metrics.jsonl") - 2);
  append("run/metrics.jsonl", ", \"validation_loss\": 3.25}\n");
  EXPECT_EQ(report.news(wall_time(), 20), "iteration 2  validation loss 3.25\n");
  append("run/events.jsonl", "{\"time\": 5, \"event\": \"finished\", \"iteration\": 2}\n");
  EXPECT_NE(report.news(wall_time(), 20).find("state: finished"), std::string::npos);
  EXPECT_TRUE(report.over(wall_time()));
}

TEST_F(WatchTest, PlainLinesAreNotOverBeforeTheRowsAreToldThatCameWithTheEnd) {
  std::filesystem::create_directory("run");
  std::optional<FolderLock> lock;
  lock.emplace("run");
  append("run/metrics.jsonl", row(1));
  PlainReport report("run", "");
  report.news(wall_time(), 20);
  append("run/metrics.jsonl", row(2));
  lock.reset();
  EXPECT_FALSE(report.over(wall_time()));
  EXPECT_NE(report.news(wall_time(), 20).find("iteration 2"), std::string::npos);
  EXPECT_TRUE(report.over(wall_time()));
}

TEST_F(WatchTest, PlainLinesTellNoRowAgainThatAResumedRunKeeps) {
  const auto row = [](int iteration, double loss) {
    return text("{\"iteration\": ", iteration, ", \"loss\": ", loss, "}\n");
  };
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", row(1, 5) + row(2, 4) + row(3, 3.5));
  PlainReport report("run", "");
  report.news(1, 20);
  write("run/metrics.jsonl", row(1, 5) + row(2, 4));
  EXPECT_EQ(report.news(1, 20), "");
  append("run/metrics.jsonl", row(3, 3.5) + row(4, 3));
  EXPECT_EQ(report.news(1, 20), "iteration 3  loss 3.5\niteration 4  loss 3\n");
}

TEST_F(WatchTest, RunsAreFoundNewestFirst) {
  for (const char* name : {"a/b/old", "new", "a/b/c/d/too_deep"}) {
    std::filesystem::create_directories(name);
    append(std::string(name) + "/run.json", "{}");
  }
  std::filesystem::last_write_time("a/b/old/run.json",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  std::filesystem::create_directory_symlink("new", "link");
  const auto found = find_runs(".", 9);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].filename(), "new");
  EXPECT_EQ(found[1].filename(), "old");
  EXPECT_EQ(find_runs(".", 1).size(), 1U);
}

TEST_F(WatchTest, TheLastLinesOfALongFileAreRead) {
  for (int i = 0; i < 3000; ++i) append("log", text("line ", i, "\n"));
  EXPECT_EQ(last_lines("log", 2), (std::vector<std::string>{"line 2998", "line 2999"}));
  EXPECT_TRUE(last_lines("absent", 2).empty());
}

}  // namespace
}  // namespace tessera::watch
