#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/parallel/pipeline_schedule.h"
#include "framework/runs/run_reader.h"

namespace tessera::report {

/// A checkpoint of a run, as `tessera checkpoint list` tells it.
struct PageCheckpoint {
  std::int64_t iteration = 0;
  std::string folder, format, state, reason;
  std::uint64_t bytes = 0;
};

/// How ranks of a run are laid out, computed from its recipe.
struct PageLayout {
  std::string words;                                ///< the layout's report, in lines
  std::optional<parallel::PipelineShape> pipeline;  ///< of one step; nothing for a single stage
  std::vector<std::vector<double>> costs;           ///< [stage][chunk]: time of a forward pass, in any unit
};

/// An option that has not the same value in the first run and another.
struct PageDifference {
  std::string option;  ///< "optimizer_config.learning_rate"
  std::size_t run;     ///< number of the other run in the page
  std::string one, other;
};

struct PageRun {
  const runs::RunReader* reader = nullptr;  ///< refreshed
  std::vector<PageCheckpoint> checkpoints;
  std::optional<PageLayout> layout;
  std::string no_layout;  ///< why there is no layout; empty: not said
  std::string command;    ///< the line that repeats the run
};

/// What a report shows. Texts may hold any characters.
struct Page {
  std::vector<PageRun> runs;
  std::vector<PageDifference> differences;
  std::string no_differences;  ///< why they could not be computed
  double now = 0;              ///< seconds since 1970
  double refresh_seconds = 0;  ///< after which a served page reads itself again; 0: a file, which makes no request
  std::string version;         ///< of the program
};

/// The page: one HTML document that needs no other file and makes no request, which its content policy enforces; with
/// `refresh_seconds` it asks its own server for itself, and nothing else. It can be read without script. Of a run of
/// any length it has below 3 MB. Throws IoError for a trace that cannot be read.
std::string page_html(const Page& page);

/// How a line of a chart looks, as in ChartLine.
struct LineLook {
  std::size_t look, marker;
};
/// In a page of several runs, of the key with this number of a chart: each run has its colour and dash pattern in all
/// charts. Of 26 runs with 8 keys, no two lines have the same class and marker.
LineLook look_among_runs(std::size_t run, std::size_t key);
/// In a page of one run. Of 256 keys, no two have the same class and marker.
LineLook look_among_keys(std::size_t key);

/// The letter of a run in a page with several: A, B, ..., Z, 26, 27, ...
std::string run_letter(std::size_t run);

}  // namespace tessera::report
