#include "framework/report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <set>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/report/chart.h"
#include "framework/report/event_marks.h"
#include "framework/report/html.h"
#include "tests/own_folder.h"

namespace tessera::report {
namespace {

constexpr const char* hostile = "</script><img src=x onerror=\"alert('1')\"><!-- &amp; \x1b[31m";

class ReportPage : public InOwnFolder {
 protected:
  ReportPage() { page_.version = "tessera"; }
  runs::RunReader& add_run(const std::string& folder) {
    auto& reader = *readers_.emplace_back(std::make_unique<runs::RunReader>(folder));
    reader.refresh();
    page_.runs.emplace_back().reader = &reader;
    return reader;
  }
  Json data() const {
    const auto html = page_html(page_);
    const std::string begin = "id=\"data\">";
    const auto at = html.find(begin) + begin.size();
    return read_json(std::string_view(html).substr(at, html.find("</script>", at) - at));
  }
  Page page_;
  std::vector<std::unique_ptr<runs::RunReader>> readers_;
};

TEST(Html, EscapesTextsAndData) {
  EXPECT_EQ(escaped("a<b>&\"'c"), "a&lt;b&gt;&amp;&quot;&#39;c");
  EXPECT_EQ(escaped("\x1b[0m\x9b"), "\\u001b[0m\\x9b");
  EXPECT_EQ(in_script("{\"a\":\"</script>&<!--\"}"), "{\"a\":\"\\u003c/script\\u003e\\u0026\\u003c!--\"}");
  EXPECT_EQ(read_json(in_script("[\"</script>&\"]")), Json::array({"</script>&"}));
  EXPECT_EQ(json_number(NAN), "null");
  EXPECT_EQ(json_number(0.1), "0.1");
}

TEST(Html, HashesContentForThePolicy) {
  EXPECT_EQ(policy_hash("doSomething();"), "'sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc='");
  EXPECT_EQ(policy_hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

TEST(Chart, DrawsEachSpikeOfAMillionPoints) {
  runs::Curve curve;
  for (std::int64_t x = 0; x < 1'000'000; ++x) curve.add(x, x == 333'333 ? 1000.0 : x == 777'777 ? -1000.0 : 1.0);
  const auto svg = chart_svg({"chart-0", "Loss", "", {"loss"}}, {{"loss", &curve, 0}}, {});
  EXPECT_LT(svg.size(), 20'000U);
  // The ends of the axis are 1/20 of the range beyond the spikes: at 18 + 232 / 22 and 250 - 232 / 22.
  EXPECT_NE(svg.find(" 28.55L"), std::string::npos) << svg;
  EXPECT_NE(svg.find(" 239.45L"), std::string::npos);
  const auto json = read_json(curve_json(curve, 500));
  EXPECT_LE(json.size(), 500U);
  double least = 0, greatest = 0;
  for (const auto& column : json) {
    least = std::min(least, column.at(3).number());
    greatest = std::max(greatest, column.at(5).number());
  }
  EXPECT_EQ(least, -1000);
  EXPECT_EQ(greatest, 1000);
}

TEST(Chart, ShowsMissingValuesAndTheLargest) {
  runs::Curve curve;
  for (std::int64_t x = 0; x < 5; ++x) curve.add(x, x == 2 ? NAN : x == 3 ? 1e308 : -1e308);
  const auto svg = chart_svg({"chart-0", "Loss", "", {"loss"}}, {{"loss", &curve, 0}}, {{1, hostile}});
  EXPECT_NE(svg.find("class=\"gap"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(svg.find("<img"), std::string::npos);
  EXPECT_EQ(curve_json(curve, 10), "[[0,-1e+308],[1,-1e+308],[2,null],[3,1e+308],[4,-1e+308]]");
  runs::Curve nothing;
  nothing.add(1, NAN);
  for (const auto* one : {&nothing})
    EXPECT_EQ(chart_svg({"chart-0", "Loss", "", {"loss"}}, {{"loss", one, 0}}, {}).find("nan"), std::string::npos);
}

TEST_F(ReportPage, ShowsHostileTextsAsTexts) {
  const auto quoted = json_quoted(hostile);
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2.5, \"</script><img src=x>\": 1}\n");
  write("run/events.jsonl", "{\"time\": 1, \"event\": \"start\", \"iteration\": 0}\n{\"event\": " + quoted +
                                ", \"iteration\": 1, \"message\": " + quoted + "}\n");
  write("run/run.json", "{\"run\": " + quoted + ", \"cpu\": " + quoted + ", \"hosts\": [{\"name\": " + quoted + "}]}");
  write("run/resolved.yaml", text("training_config:\n  output_dir: ", quoted, "  # ", quoted, "\n"));
  add_run("run");
  auto& run = page_.runs[0];
  run.command = run.no_layout = hostile;
  run.checkpoints.push_back({1, hostile, hostile, hostile, hostile, 5});
  page_.runs.push_back(run);
  page_.differences.push_back({hostile, 1, hostile, hostile});
  const auto html = page_html(page_);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find('\x1b'), std::string::npos);
  std::size_t ends = 0;
  for (auto at = html.find("</script>"); at != std::string::npos; at = html.find("</script>", at + 1)) ++ends;
  EXPECT_EQ(ends, 2U);
  EXPECT_NE(html.find("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;"), std::string::npos);
  EXPECT_EQ(data()["runs"][0]["curves"]["</script><img src=x>"][0][1].number(), 1);
}

TEST(Chart, TellsManyLinesApartWithoutColour) {
  std::set<std::string> looks;
  const auto is_new = [&looks](LineLook look) {
    return looks.insert(text(line_class(look.look), line_marker(look.marker))).second;
  };
  for (std::size_t key = 0; key < 256; ++key) EXPECT_TRUE(is_new(look_among_keys(key))) << key;
  looks.clear();
  for (std::size_t run = 0; run < 26; ++run)
    for (std::size_t key = 0; key < 8; ++key) EXPECT_TRUE(is_new(look_among_runs(run, key))) << run << " " << key;
}

TEST_F(ReportPage, KeepsTheNameOfAChartWhenOthersAppear) {
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"grad_norm\": 2, \"b/ü\": 1}\n");
  add_run("run");
  const auto ids = [this] {
    std::set<std::string> all;
    const auto list = charts_of({readers_.back().get()});
    for (const auto& chart : list.charts) all.insert(chart.id);
    return all;
  };
  EXPECT_EQ(ids(), (std::set<std::string>{"chart-grad_5fnorm", "chart-b_2f_c3_bc"}));
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 1, \"a\": 1, \"grad_norm\": 2, \"b/ü\": 1, \"b_2fü\": 1}\n");
  add_run("run");
  EXPECT_EQ(ids(), (std::set<std::string>{"chart-loss", "chart-grad_5fnorm", "chart-a", "chart-b_2f_c3_bc",
                                          "chart-b_5f2f_c3_bc"}));
}

TEST_F(ReportPage, TellsHowManyKeysHaveNoChart) {
  std::filesystem::create_directory("run");
  std::string row = "{\"iteration\": 1, \"loss\": 2";
  for (int key = 0; key < 100; ++key) row += text(", \"key_", key, "\": 1");
  write("run/metrics.jsonl", row + "}\n");
  add_run("run");
  EXPECT_EQ(data()["charts"].size(), 60U);
  EXPECT_NE(page_html(page_).find("Keys of the metrics without a chart, because there are too many: 41.<"),
            std::string::npos);
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2}\n");
  readers_.back()->refresh();
  EXPECT_EQ(page_html(page_).find("Keys of the metrics without"), std::string::npos);
}

TEST_F(ReportPage, TellsHowManyLinesOfEachFileAreDamaged) {
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2}\nx\ny\n");
  write("run/events.jsonl", "{\"event\": \"start\", \"iteration\": 0}\n{\"event\": \"fail\nx\n{}\n");
  add_run("run");
  EXPECT_NE(page_html(page_).find("1 rows, 2 damaged lines of metrics.jsonl left out, 3 damaged lines of events.jsonl"),
            std::string::npos);
}

TEST_F(ReportPage, ShowsAFailureThatDoesNotTellItsIteration) {
  const std::string start = "{\"event\": \"start\", \"iteration\": 0}\n",
                    failed = "{\"event\": \"failed\", \"message\": \"rank 0 was killed\"}\n";
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2}\n{\"iteration\": 30, \"loss\": 1}\n");
  write("run/events.jsonl", start + failed);
  auto& run = add_run("run");
  const auto html = page_html(page_);
  EXPECT_NE(html.find("<tr><td></td><td>failed</td><td>rank 0 was killed</td>"), std::string::npos);
  EXPECT_NE(html.find("class=\"mark bad\""), std::string::npos);
  EXPECT_NE(html.find("<title>failed (iteration unknown)</title>"), std::string::npos);
  EXPECT_EQ(data()["runs"][0]["events"],
            Json::array({Json::array({0, 0, "start at 0"}),
                         Json::array({30, 1, "failed (iteration unknown): rank 0 was killed"})}));
  write("run/events.jsonl",
        start + failed + "{\"event\": \"restart\"}\n{\"event\": \"start\", \"iteration\": 20}\n" + failed);
  run.refresh();
  std::vector<std::int64_t> places;
  for (const auto& mark : event_marks(run, 10)) places.push_back(mark.iteration);
  EXPECT_EQ(places, (std::vector<std::int64_t>{0, 20, 20, 20, 30}));
  write("run/metrics.jsonl", "");
  run.refresh();
  places.clear();
  for (const auto& mark : event_marks(run, 10)) places.push_back(mark.iteration);
  EXPECT_EQ(places, (std::vector<std::int64_t>{0, 20, 20, 20})) << "nothing tells where the last one belongs";
}

TEST_F(ReportPage, ManyOtherEventsHideNoFailure) {
  const auto event = [](const char* kind, int iteration) {
    return text("{\"event\": \"", kind, "\", \"iteration\": ", iteration, "}\n");
  };
  std::string events = event("start", 0) + event("save_failed", 1);
  for (int i = 2; i < 600; ++i) events += event("saved", i) + event("skipped", i) + event("note", i);
  events += event("failed", 600) + event("restart", 600) + event("start", 590);
  for (const char* folder : {"one", "two"}) {
    std::filesystem::create_directory(folder);
    write(text(folder, "/metrics.jsonl"), "{\"iteration\": 1, \"loss\": 2}\n{\"iteration\": 700, \"loss\": 1}\n");
    write(text(folder, "/events.jsonl"), events);
    add_run(folder);
  }
  const auto titles = [](const std::vector<ChartMark>& marks) {
    std::string all;
    for (const auto& mark : marks) all += mark_title(mark) + "; ";
    return all;
  };
  const auto& run = *readers_.front();
  EXPECT_EQ(titles(event_marks(run, 2)), "save_failed at 1; failed at 600; ");
  EXPECT_EQ(
      titles(event_marks(run, 7)),
      "start at 0; save_failed at 1; skipped at 598; skipped at 599; failed at 600; restart at 600; start at 590; ");
  const auto all = data();
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& marks = all["runs"][i]["events"];
    EXPECT_EQ(marks.size(), 200U);
    EXPECT_EQ(marks[197], Json::array({600, 1, "failed at 600"})) << "of run " << i;
  }
  std::size_t drawn = 0;
  const auto html = page_html(page_);
  for (auto at = html.find(">failed at 600<"); at != std::string::npos; at = html.find(">failed at 600<", at + 1))
    ++drawn;
  EXPECT_EQ(drawn, 2U) << "in the drawing without script, of each run";
}

TEST_F(ReportPage, AServedPageMayAskItsServerAndAFileMayNot) {
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2.5}\n");
  add_run("run");
  EXPECT_EQ(page_html(page_).find("connect-src"), std::string::npos);
  page_.refresh_seconds = 5;
  page_.now = 86400;
  const auto html = page_html(page_);
  EXPECT_NE(html.find("; connect-src 'self'; base-uri"), std::string::npos);
  EXPECT_NE(html.find("data-seconds=\"5\">Read at 1970-01-02 00:00:00 UTC.<"), std::string::npos);
  EXPECT_NE(html.find("<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>"), std::string::npos);
}

TEST_F(ReportPage, NamesNoOtherFileAndItsPolicyPermitsNone) {
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2.5}\n");
  add_run("run");
  const auto html = page_html(page_);
  EXPECT_NE(html.find("default-src 'none'; style-src 'sha256-"), std::string::npos);
  for (const char* word : {"src=", "url(\"", "@import", "https://", "fetch(", "XMLHttpRequest", "style=\"", "onclick"})
    EXPECT_EQ(html.find(word), std::string::npos) << word;
}

TEST_F(ReportPage, OfAMillionStepsHasLessThanThreeMegabytes) {
  std::filesystem::create_directory("run");
  {
    std::ofstream rows("run/metrics.jsonl");
    for (int i = 1; i <= 100'000; ++i) {
      rows << "{\"iteration\": " << i * 10;
      for (int key = 0; key < 30; ++key) rows << ", \"key_" << key << "\": " << std::sin(i * 0.1 + key) / 3.0;
      rows << ", \"most_load\": [1.25, 1.5, 1.75, 1.125]}\n";
    }
  }
  for (int i = 0; i < 5000; ++i)
    std::ofstream("run/events.jsonl", std::ios::app)
        << "{\"event\": \"restart\", \"iteration\": " << i << ", \"reason\": \"" << std::string(200, 'x') << "\"}\n";
  add_run("run");
  const auto size = page_html(page_).size();
  EXPECT_LT(size, 3'000'000U);
  EXPECT_GT(size, 1'000'000U);
}

TEST_F(ReportPage, HasEveryPartOfARun) {
  for (const char* rank : {"rank_2", "rank_10", "other"})
    std::filesystem::create_directories(std::filesystem::path("run/profile") / rank);
  write("run/metrics.jsonl",
        "{\"iteration\": 1, \"consumed_samples\": 8, \"loss\": 2.5, \"rewards/margins\": 0.5, \"weight_bytes\": 1024, "
        "\"step_seconds\": 0.5, \"most_load\": [1.5, null], \"rank_seconds\": [0.5, 0.25]}\n");
  write("run/events.jsonl", "{\"event\": \"finished\", \"iteration\": 1, \"time\": 86400}\n");
  write("run/run.json", R"({"foreseen_memory": [{"rank": 0, "weights": 2048}, {"weights": 4096}],
    "measured_memory": [{"weights": 1000, "process_peak": 7000000}, {"weights": 1001, "process_peak": 7000001}]})");
  write("run/resolved.yaml", "training_config:\n  seed: 1  # default\n  training_iters: 1  # --set x\n");
  for (const char* folder : {"other", "rank_10"}) write(text("run/profile/", folder, "/trace.json"), "{}");
  write("run/profile/rank_2/trace.json",
        R"({"traceEvents": [{"name": "step", "cat": "phase", "ph": "X", "pid": 0, "tid": 0, "ts": 5, "dur": 1000},
           {"name": "forward pass", "cat": "phase", "ph": "X", "pid": 0, "tid": 0, "ts": 10, "dur": 400}]})");
  add_run("run");
  page_.runs[0].layout = PageLayout{"layout of 4 ranks", parallel::PipelineShape{.stages = 4, .micro_batches = 8}, {}};
  page_.runs[0].checkpoints.push_back({1, "run/checkpoints/iter_1", "native", "whole", "", 1000});
  const auto html = page_html(page_);
  for (const char* part :
       {"runs", "curves", "events", "memory", "experts", "timeline", "layout", "checkpoints", "recipe"})
    EXPECT_NE(html.find(text("<section id=\"", part, "\"")), std::string::npos) << part;
  for (const char* words :
       {"finished", "1970-01-02 00:00:00 UTC", "<td>2048</td><td>1024</td>", "layer 0, iteration 1: 1.5",
        "<td>4096</td>", "<td>1001</td>", "<td>7000001</td>", "rank 1, iteration 1: 0.25", "forward pass: 0.4 ms",
        "backward pass of micro-batch 7", "training_iters: 1", "Rewards"})
    EXPECT_NE(html.find(words), std::string::npos) << words;
  EXPECT_EQ(html.find("id=\"differences\""), std::string::npos);
  const auto all = data();
  EXPECT_EQ(all["runs"][0]["curves"]["loss"][0][1].number(), 2.5);
  EXPECT_EQ(all["runs"][0]["axes"]["samples"][0][1].number(), 8);
}

TEST_F(ReportPage, TakesDamagedTraces) {
  std::filesystem::create_directories("run/profile/rank_0");
  add_run("run");
  for (const char* trace :
       {"", "{", "[]", R"({"traceEvents": 5})", R"({"traceEvents": [1, {"ph": "X"}]})",
        R"({"traceEvents": [{"name": "step", "ph": "X", "tid": 0, "ts": -1e308, "dur": 1e308}]})"}) {
    write("run/profile/rank_0/trace.json", trace);
    EXPECT_EQ(page_html(page_).find("nan"), std::string::npos) << trace;
  }
}

}  // namespace
}  // namespace tessera::report
