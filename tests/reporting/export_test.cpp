#include "framework/reporting/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/reporting/metrics_row.h"
#include "framework/reporting/prometheus.h"
#include "framework/reporting/tensorboard.h"
#include "tests/own_folder.h"

namespace tessera::reporting {
namespace {

class ExportTest : public InOwnFolder {};

std::string members(std::string_view line) {
  std::string all;
  MetricsRow row(line);
  while (row.next()) all += text(row.key, "=", row.json, ";");
  return row.damaged() ? all + "damaged" : all;
}

TEST(MetricsRow, GivesTheMembersOfALineAndOfAPartOfOne) {
  EXPECT_EQ(members("{\"a\": 1, \"b/c\": -2.5e-07, \"d\": null, \"e\": true}\n"), "a=1;b/c=-2.5e-07;d=null;e=true;");
  EXPECT_EQ(members(", \"a\": 1}\n"), "a=1;");
  EXPECT_EQ(members("{\"a\": [0.5, null, 3], \"b\": []}"), "a=[0.5, null, 3];b=[];");
  EXPECT_EQ(members("{}"), "");
}

TEST(MetricsRow, EndsAtATextThatIsNotOneOfTheFile) {
  for (const char* line :
       {"{\"a\": 1", "{\"a\": 1,", "{\"a\": }", "{\"a\"", "{\"a\":1}", "{\"a\": nan}", "{\"a\": inf}", "{\"a\": \"x\"}",
        "{\"a\": {\"b\": 1}}", "{\"a\": [1, x]}", "{\"a\": [1", "{\"a\": [[1]]}", "{a: 1}", "[1]", "{\"a\": 1}x",
        "{\"a\\\"b\": 1}", "{\"a\": 1 \"b\": 2}", "{\"a\": tru}", "{\"a\": 0x10}"})
    EXPECT_TRUE(members(line).ends_with("damaged")) << line << " gave " << members(line);
}

/// No text may make the scanner read outside of it or loop for ever (run under the address sanitizer, too).
TEST(MetricsRow, EndsForEveryText) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  constexpr std::string_view letters = "{}[]\": ,a1.-nul\\";
  for (int i = 0; i < 20000; ++i) {
    std::string line(draw() % 24, ' ');
    for (auto& c : line) c = letters[draw() % letters.size()];
    members(line);
    std::string good = "{\"a\": [0.5, null], \"b\": 1.5}";
    good[draw() % good.size()] = letters[draw() % letters.size()];
    members(good);
  }
}

TEST(MetricsRow, NumbersAreThoseOfTheText) {
  EXPECT_EQ(number_of("1.5"), 1.5);
  EXPECT_EQ(number_of("true"), 1);
  EXPECT_TRUE(std::isnan(*number_of("null")));
  EXPECT_EQ(number_of("1e999"), HUGE_VAL);
  EXPECT_EQ(number_of("1e-999"), 0);
  EXPECT_EQ(number_of("[1]"), std::nullopt);
}

constexpr const char* some_lines =
    "{\"iteration\": 1, \"consumed_samples\": 8, \"loss\": 5.25, \"least_load\": [0.5, null], \"step_seconds\": 2.0}\n"
    "torn {\n"
    "{\"iteration\": 2, \"consumed_samples\": 16, \"loss\": null, \"least_load\": [0.25, null], \"step_seconds\": 2.0, "
    "\"validation_loss\": 4.5, \"validation_loss-de\": 4.75}\n"
    "{\"iteration\": 3, \"consumed";

TEST_F(ExportTest, ATableHasAColumnForEachKey) {
  write("metrics.jsonl", some_lines);
  std::ostringstream table;
  const auto exported = export_csv("metrics.jsonl", table);
  EXPECT_EQ(exported.rows, 2);
  EXPECT_EQ(exported.damaged, 2);
  EXPECT_EQ(table.str(),
            "iteration,consumed_samples,loss,least_load,step_seconds,validation_loss,validation_loss-de\n"
            "1,8,5.25,\"[0.5, null]\",2.0,,\n"
            "2,16,,\"[0.25, null]\",2.0,4.5,4.75\n");
}

TEST_F(ExportTest, EventsHaveTheTagsOfARun) {
  write("metrics.jsonl", some_lines);
  EXPECT_EQ(export_tensorboard("metrics.jsonl", "events").rows, 2);
  const auto bytes = read_file(list_folder("events").at(0));
  for (const char* tag : {"lm loss", "least_load_layer_0", "lm loss validation-de", "consumed_samples"})
    EXPECT_NE(bytes.find(tag), std::string::npos) << tag;
  EXPECT_TRUE(holds_points("events"));
  EXPECT_THROW(export_tensorboard("metrics.jsonl", "events"), ConfigError);
}

TEST_F(ExportTest, PrometheusHasTheNewestValues) {
  write("metrics.jsonl", some_lines);
  export_prometheus("metrics.jsonl", "my \"run\"\\", "run.prom");
  const auto content = read_file("run.prom");
  const std::string label = R"({run="my \"run\"\\")";
  for (const auto& line :
       {"# TYPE tessera_loss gauge\ntessera_loss" + label + "} NaN\n",
        "tessera_least_load" + label + ",layer=\"0\"} 0.25\n", "tessera_validation_loss_de" + label + "} 4.75\n"})
    EXPECT_NE(content.find(line), std::string::npos) << line << "in\n" << content;
  EXPECT_FALSE(std::filesystem::exists("run.prom.tmp"));
}

// The parser of node_exporter refuses a file in which two gauges have one name.
TEST_F(ExportTest, PrometheusHasEachNameOnce) {
  PrometheusFile file("run.prom", "r");
  file.add(R"({"a.b": 1, "a_b_2": 2})", 9);
  file.add(R"({"a-b": 3, "last_update_seconds": 4})", 10);
  EXPECT_EQ(read_file("run.prom"),
            "# TYPE tessera_a_b_3 gauge\ntessera_a_b_3{run=\"r\"} 3\n"
            "# TYPE tessera_a_b gauge\ntessera_a_b{run=\"r\"} 1\n"
            "# TYPE tessera_a_b_2 gauge\ntessera_a_b_2{run=\"r\"} 2\n"
            "# TYPE tessera_last_update_seconds_2 gauge\ntessera_last_update_seconds_2{run=\"r\"} 4\n"
            "# TYPE tessera_last_update_seconds gauge\ntessera_last_update_seconds{run=\"r\"} 10.000\n");
}

TEST_F(ExportTest, PrometheusKeepsAValueThatARowDoesNotHave) {
  PrometheusFile file("run.prom", "r");
  file.add("{\"iteration\": 1, \"loss\": 2.5}\n", 10);
  file.add(", \"validation_loss\": 4.5}\n", 11.5);
  file.add("{\"iteration\": 2, \"loss\": 2.25}\n", 12);
  EXPECT_EQ(read_file("run.prom"),
            "# TYPE tessera_iteration gauge\ntessera_iteration{run=\"r\"} 2\n"
            "# TYPE tessera_loss gauge\ntessera_loss{run=\"r\"} 2.25\n"
            "# TYPE tessera_validation_loss gauge\ntessera_validation_loss{run=\"r\"} 4.5\n"
            "# TYPE tessera_last_update_seconds gauge\ntessera_last_update_seconds{run=\"r\"} 12.000\n");
  EXPECT_STREQ(file.complaint(), "");
}

TEST_F(ExportTest, PrometheusKeepsWhatAnEarlierStartWroteUntilThereAreValues) {
  PrometheusFile("run.prom", "r").add("{\"iteration\": 4}\n", 10);
  const auto before = read_file("run.prom");
  PrometheusFile again("run.prom", "r");
  EXPECT_EQ(read_file("run.prom"), before);
  EXPECT_FALSE(std::filesystem::exists("run.prom.tmp"));
}

TEST_F(ExportTest, ItemsOfAListBelongToLayersOrRanks) {
  const std::string line = "{\"iteration\": 1, \"least_load\": [0.5], \"rank_seconds\": [0.25, 0.75]}\n";
  write("metrics.jsonl", line);
  export_tensorboard("metrics.jsonl", "events");
  const auto bytes = read_file(list_folder("events").at(0));
  for (const char* tag : {"least_load_layer_0", "rank_seconds_rank_1"})
    EXPECT_NE(bytes.find(tag), std::string::npos) << tag;
  PrometheusFile("run.prom", "r").add(line, 10);
  const auto content = read_file("run.prom");
  for (const char* sample :
       {"tessera_least_load{run=\"r\",layer=\"0\"} 0.5\n", "tessera_rank_seconds{run=\"r\",rank=\"1\"} 0.75\n"})
    EXPECT_NE(content.find(sample), std::string::npos) << content;
}

TEST_F(ExportTest, AFolderThatIsMissingIsNamed) {
  try {
    PrometheusFile("nowhere/run.prom", "r");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere/run.prom"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::reporting
