#include "framework/reporting/export.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/reporting/metrics_row.h"
#include "framework/reporting/prometheus.h"
#include "framework/reporting/tensorboard.h"

namespace tessera::reporting {
namespace {

/// Calls visit(reader) for each whole line.
template <class Visit>
Exported each_row(const std::string& metrics, const Visit& visit) {
  Exported exported;
  MetricsReader reader(metrics);
  for (; reader.next(); ++exported.rows) visit(reader);
  exported.damaged = reader.damaged();
  return exported;
}

/// Seconds from the first row to the present one.
class Elapsed {
 public:
  double after(const MetricsReader& reader) {
    for (MetricsRow row(reader.line()); row.next();)
      if (row.key == "step_seconds") seconds_ = number_of(row.json).value_or(seconds_);
    if (!std::isfinite(seconds_)) seconds_ = 0;
    elapsed_ += static_cast<double>(std::max<std::int64_t>(reader.iteration() - before_, 0)) * seconds_;
    before_ = reader.iteration();
    return elapsed_;
  }

 private:
  double seconds_ = 0, elapsed_ = 0;
  std::int64_t before_ = 0;
};

/// The time of the first row, in seconds since 1970.
double begin_of(const std::string& metrics) {
  struct stat facts {};
  const double end = ::stat(metrics.c_str(), &facts) == 0 ? static_cast<double>(facts.st_mtime) : wall_time();
  double all = 0;
  Elapsed elapsed;
  each_row(metrics, [&](const MetricsReader& reader) { all = elapsed.after(reader); });
  return end - all;
}

/// The tag of a value in TensorBoard.
std::string tag_of(std::string_view key) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> tags = {{{"loss", "lm loss"},
                                                                                  {"grad_norm", "grad-norm"},
                                                                                  {"loss_scale", "loss-scale"},
                                                                                  {"num_zeros", "num-zeros"},
                                                                                  {"params_norm", "params-norm"}}};
  for (const auto& [ours, tag] : tags)
    if (key == ours) return std::string(tag);
  constexpr std::string_view validation = "validation_loss", prediction = "mtp_";
  if (key.substr(0, validation.size()) == validation) return text("lm loss validation", key.substr(validation.size()));
  if (key.substr(0, prediction.size()) == prediction)
    return text(key.substr(0, key.find_last_of('_')), " ", key.substr(key.find_last_of('_') + 1));
  return std::string(key);
}

std::string cell(std::string_view words) {
  if (words == "null") return "";
  if (words.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(words);
  std::string out = "\"";
  for (const char c : words) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

Exported export_csv(const std::string& metrics, std::ostream& to) {
  std::vector<std::string> keys;
  each_row(metrics, [&](const MetricsReader& reader) {
    for (MetricsRow row(reader.line()); row.next();)
      if (std::find(keys.begin(), keys.end(), row.key) == keys.end()) keys.emplace_back(row.key);
  });
  for (std::size_t i = 0; i < keys.size(); ++i) to << (i > 0 ? "," : "") << cell(keys[i]);
  if (!keys.empty()) to << "\n";
  std::vector<std::string> cells;
  return each_row(metrics, [&](const MetricsReader& reader) {
    cells.assign(keys.size(), "");
    for (MetricsRow row(reader.line()); row.next();) {
      // A run that goes on may have written a line with a new key since the first pass.
      const auto column = std::find(keys.begin(), keys.end(), row.key);
      if (column != keys.end()) cells[static_cast<std::size_t>(column - keys.begin())] = cell(row.json);
    }
    for (std::size_t i = 0; i < cells.size(); ++i) to << (i > 0 ? "," : "") << cells[i];
    to << "\n";
  });
}

Exported export_prometheus(const std::string& metrics, const std::string& run, const std::string& to) {
  PrometheusFile file(to, run);
  const double begin = begin_of(metrics);
  Elapsed elapsed;
  const auto exported =
      each_row(metrics, [&](const MetricsReader& reader) { file.take(reader.line(), begin + elapsed.after(reader)); });
  file.write();
  if (*file.complaint() != 0) throw IoError(file.complaint());
  return exported;
}

Exported export_tensorboard(const std::string& metrics, const std::string& folder) {
  if (holds_points(folder))
    throw ConfigError(text(folder, ": has event files with curves already, over which these would be drawn; give ",
                           "another folder, or delete them"));
  const double begin = begin_of(metrics);
  EventFile file(folder);
  Elapsed elapsed;
  std::vector<std::pair<std::string, double>> values;
  std::vector<Scalar> points;
  const auto exported = each_row(metrics, [&](const MetricsReader& reader) {
    values.clear();
    for (MetricsRow row(reader.line()); row.next();) {
      if (row.key == "iteration") continue;
      if (const auto value = number_of(row.json)) {
        values.emplace_back(tag_of(row.key), *value);
        continue;
      }
      each_item(row.json, [&](std::size_t index, std::string_view item) {
        values.emplace_back(text(row.key, "_", owner_of_items(row.key), "_", index), *number_of(item));
      });
    }
    points.clear();
    for (const auto& [tag, value] : values) points.push_back({tag, value});
    file.add(reader.iteration(), points, begin + elapsed.after(reader));
  });
  if (*file.complaint() != 0) throw IoError(file.complaint());
  return exported;
}

Exported export_wandb(const std::string& metrics, const WandbRun& run, const std::string& folder, std::string& place) {
  const double begin = begin_of(metrics);
  WandbFile file(folder, run, {}, begin);
  Elapsed elapsed;
  const auto exported = each_row(metrics, [&](const MetricsReader& reader) {
    file.add(reader.iteration(), reader.consumed_samples(), reader.line(), begin + elapsed.after(reader));
  });
  if (*file.complaint() != 0) throw IoError(file.complaint());
  place = file.folder();
  return exported;
}

}  // namespace tessera::reporting
