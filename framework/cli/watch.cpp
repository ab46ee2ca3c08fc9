#include "framework/cli/watch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "framework/base/clock.h"
#include "framework/cli/report.h"
#include "framework/report/page.h"
#include "framework/runs/run_reader.h"
#include "framework/watch/find_runs.h"
#include "framework/watch/plain.h"
#include "framework/watch/server.h"
#include "framework/watch/state_words.h"
#include "framework/watch/terminal.h"
#include "framework/watch/view.h"

namespace tessera::cli {
namespace {

constexpr std::size_t most_found = 8, log_lines = 20, first_lines = 20;
constexpr int largest_port = 65535;
constexpr double refresh_seconds = 10;

struct WatchArguments {
  std::vector<std::string> runs;
  bool plain = false;
  double interval = 1;
  std::optional<std::string> serve;  ///< the port, or empty
};

using Readers = std::vector<std::unique_ptr<runs::RunReader>>;

std::vector<const runs::RunReader*> pointers(const Readers& readers) {
  std::vector<const runs::RunReader*> all;
  for (const auto& reader : readers) all.push_back(reader.get());
  return all;
}

std::vector<std::string> folders_of(const WatchArguments& arguments) {
  auto folders = arguments.runs;
  if (folders.empty())
    for (const auto& run : watch::find_runs(".", most_found)) folders.push_back(run.string());
  if (folders.empty())
    throw ConfigError(
        "there is no run folder (with metrics.jsonl, events.jsonl or run.json) in the current folder or up to 4 levels "
        "below it; give the run folder (training_config.output_dir) of a run");
  check_number_of_runs(folders.size());
  return folders;
}

Readers readers_of(const std::vector<std::string>& folders) {
  Readers readers;
  for (const auto& folder : folders) readers.push_back(std::make_unique<runs::RunReader>(folder));
  return readers;
}

void watch_plain(const std::vector<std::string>& folders, double interval) {
  std::vector<std::unique_ptr<watch::PlainReport>> reports;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const auto label = folders.size() > 1 ? text(watch::run_mark(i), " ", folders[i]) : std::string();
    reports.push_back(std::make_unique<watch::PlainReport>(folders[i], label));
  }
  for (std::size_t most = first_lines;; most = 1000000) {
    bool over = true;
    for (const auto& report : reports) {
      const auto now = wall_time();
      std::cout << report->news(now, most);
      over = over && report->over(now);
    }
    if (!std::cout.flush() || over) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

/// The signal that ended it; 0: the user.
int watch_in_terminal(const std::vector<std::string>& folders, double interval) {
  const auto readers = readers_of(folders);
  watch::View view(pointers(readers));
  for (const auto& reader : readers) reader->refresh();  // of a long run it takes a while
  watch::Terminal terminal;
  Stopwatch since_read;
  for (bool first = true; terminal.ended_by() == 0;) {
    if (first || since_read.seconds() >= interval) {
      for (const auto& reader : readers) reader->refresh();
      since_read.lap();
      first = false;
    }
    view.set_log(watch::last_lines(view.selected().folder() / "tessera.log", log_lines));
    auto screen = watch::Terminal::blank_screen();
    view.draw(screen, wall_time());
    terminal.show(screen);
    const auto key = terminal.key(std::max(interval - since_read.seconds(), 0.01));
    if (key && !view.take(*key)) return 0;
  }
  return terminal.ended_by();
}

int serve_port(const std::string& words) {
  if (words.empty()) return 0;
  const bool digits =
      words.size() <= 5 && std::all_of(words.begin(), words.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int port = digits ? std::stoi(words) : largest_port + 1;
  if (port > largest_port)
    throw ConfigError(text("--serve ", words, ": is no port; give a number from 0 (a free port) to ", largest_port));
  return port;
}

void watch_in_browser(const WatchArguments& arguments, const CommandContext& context) {
  auto folders = arguments.runs;
  auto port = *arguments.serve;
  // "--serve RUN": the word after an option whose value is optional.
  if (!port.empty() && !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    folders.insert(folders.begin(), std::exchange(port, ""));
  const auto readers = readers_of(folders_of({folders, false, 1, std::nullopt}));
  watch::PageServer server(serve_port(port));
  std::cout << server.address() << "\n"
            << "read only, for this host; Ctrl-C ends it\n"
            << std::flush;
  const int number = server.serve([&readers, &context] {
    bool live = false;
    for (const auto& reader : readers) {
      reader->refresh();
      // All others may go on: a run that stopped or died can be resumed.
      live = live || reader->status(wall_time()).state != runs::RunStatus::State::finished;
    }
    auto page = page_of(pointers(readers), context);
    page.refresh_seconds = live ? refresh_seconds : 0;
    return report::page_html(page);
  });
  if (number != SIGINT) std::raise(number);
}

void watch_runs(const WatchArguments& arguments, const CommandContext& context) {
  if (arguments.serve) return watch_in_browser(arguments, context);
  const auto folders = folders_of(arguments);
  if (arguments.plain || !watch::Terminal::suits()) return watch_plain(folders, arguments.interval);
  // Ctrl-C is a way to quit; after another signal the caller must see that it ended the program.
  if (const int number = watch_in_terminal(folders, arguments.interval); number != 0 && number != SIGINT)
    std::raise(number);
}

}  // namespace

void add_watch_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("watch", "Show runs live, in the terminal or in a browser on this host");
  const auto arguments = std::make_shared<WatchArguments>();
  command->add_option("RUN", arguments->runs,
                      "Run folders (training_config.output_dir) [the newest ones below the current folder]");
  const auto* plain = command->add_flag(
      "--plain", arguments->plain, "One line of text for each logged step and event; default if stdout is no terminal");
  command->add_option("--interval", arguments->interval, "Seconds between two looks at the files")
      ->between(0.1, 3600.0)
      ->show_default();
  command
      ->add_option(
          "--serve", [arguments](const std::string& port) { arguments->serve = port; },
          "Serve the report at this port of 127.0.0.1, with a token in the address; 0 or no value: a free port")
      ->type_name("PORT")
      ->as_written()
      ->optional_value()
      ->excludes(plain);
  command->callback([arguments, &context] { watch_runs(*arguments, context); });
}

}  // namespace tessera::cli
