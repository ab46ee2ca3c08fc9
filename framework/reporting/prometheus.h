#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::reporting {

/// A file in Prometheus's text format with the newest values of a run, for the textfile collector of node_exporter or
/// any other reader. Each add() replaces it as a whole (a new file is renamed over it), so that no reader sees a part.
/// A failed write does not throw; complaint() describes the first failure.
class PrometheusFile {
 public:
  /// `path` should end in ".prom", which node_exporter demands. `run`: the value of the label `run`. Throws IoError if
  /// the folder does not exist or the file cannot be created.
  PrometheusFile(const std::string& path, const std::string& run);

  /// Takes the values of `row`, a line of metrics.jsonl or a part of one (MetricsRow), over the earlier ones of the
  /// same keys. A key KEY becomes the gauge tessera_KEY, with _ for what is no letter or digit, and with _2, _3 ...
  /// behind it if a key that came before has that gauge: readers refuse a second one of a name. A list has a label
  /// `layer` or `rank` (owner_of_items). `now`: seconds since 1970, the gauge tessera_last_update_seconds.
  void take(std::string_view row, double now);
  /// Replaces the file.
  void write();
  void add(std::string_view row, double now) {
    take(row, now);
    write();
  }

  /// The first failure of a write; an empty string if there was none. Valid as long as this object.
  const char* complaint() const { return complaint_; }

 private:
  struct Gauge {
    std::string name, json;
  };
  std::string name_for(std::string_view key) const;
  void add_type();
  void add_sample(std::string_view json, std::string_view owner = {}, std::string_view index = {});
  bool replace();

  std::string path_, beside_, label_, name_, content_;
  std::map<std::string, Gauge, std::less<>> gauges_;  ///< by key
  double now_ = 0;
  char complaint_[256] = "";
};

}  // namespace tessera::reporting
