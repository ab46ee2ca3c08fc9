#include "framework/log/log.h"

#include <fcntl.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/system_call.h"
#include "framework/base/visible_text.h"
#include "framework/log/outputs.h"
#include "framework/log/repeats.h"

namespace tessera::log {
namespace {

constexpr std::array<spdlog::level::level_enum, 4> spdlog_levels = {spdlog::level::debug, spdlog::level::info,
                                                                    spdlog::level::warn, spdlog::level::err};

/// Hides the status lines and holds the log's mutex as long as it lives. Flushes std::cout first, so that earlier
/// output of a command precedes the message.
class Above {
 public:
  Above() : lock_(log_mutex()) {
    std::cout.flush();
    for (std::size_t i = 0; i < std::min(shown_lines().size(), visible_.size()); ++i) {
      visible_[i] = shown_lines()[i]->visible();
      if (visible_[i]) shown_lines()[i]->hide();
    }
  }
  ~Above() {
    for (std::size_t i = 0; i < std::min(shown_lines().size(), visible_.size()); ++i)
      if (visible_[i]) shown_lines()[i]->draw();
  }
  Above(const Above&) = delete;
  Above& operator=(const Above&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  std::array<bool, 4> visible_{};
};

/// A destination of messages, which are formatted by a pattern or, without one, written unchanged.
class Output : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) final {
    if (!formatter_) return put({message.payload.data(), message.payload.size()}, message, {});
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view words(line.data(), line.size());
    put(words, message, words.substr(message.color_range_start, message.color_range_end - message.color_range_start));
  }
  void flush() final {}
  void set_pattern(const std::string& pattern) final {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) final { formatter_ = std::move(formatter); }

 private:
  /// `coloured`: the part of `line` whose colour shows the level.
  virtual void put(std::string_view line, const spdlog::details::log_msg& message, std::string_view coloured) = 0;
  std::unique_ptr<spdlog::formatter> formatter_;
};

/// NO_COLOR: see no-color.org; an empty value counts as none.
bool wants_colour(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == 0) && StatusLine::suits(descriptor);
}

class Console final : public Output {
 public:
  explicit Console(int descriptor) : descriptor_(descriptor) {}

 private:
  void put(std::string_view line, const spdlog::details::log_msg& message, std::string_view coloured) override {
    const char* colour = message.level >= spdlog::level::err    ? "\033[31m"
                         : message.level >= spdlog::level::warn ? "\033[33m"
                                                                : nullptr;
    if (colour == nullptr || coloured.empty() || !wants_colour(descriptor_)) {
      write_all(descriptor_, line);
      return;
    }
    const auto begin = static_cast<std::size_t>(coloured.data() - line.data());
    for (const std::string_view part : {line.substr(0, begin), std::string_view(colour), coloured,
                                        std::string_view("\033[0m"), line.substr(begin + coloured.size())})
      write_all(descriptor_, part);
  }
  int descriptor_;
};

/// The log file; opened with the first message.
class LogFile {
 public:
  ~LogFile() { close(); }
  void name(const std::string& file) {
    close();
    name_ = file;
  }
  void append(std::string_view line) {
    if (name_.empty()) return;
    if (descriptor_ < 0)
      descriptor_ =
          uninterrupted([this] { return ::open(name_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
    if (descriptor_ >= 0 && write_all(descriptor_, line)) return;
    const std::string why = text("log file ", name_, ": ", std::strerror(errno), "; it is left out from here on\n");
    name("");
    write_all(STDERR_FILENO, why);
  }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  std::string name_;
  int descriptor_ = -1;
};

class FileOutput final : public Output {
 public:
  explicit FileOutput(LogFile& file) : file_(file) {}

 private:
  void put(std::string_view line, const spdlog::details::log_msg&, std::string_view) override { file_.append(line); }
  LogFile& file_;
};

/// All loggers of the process. Never destroyed: destructors of static objects may still write.
class Log {
 public:
  static Log& get() {
    static Log* const log = new Log;
    return *log;
  }

  bool shows(LogLevel level) const { return level >= level_; }

  void write(const char* component, LogLevel level, std::string_view message) {
    const Above above;
    if (!message.empty() && message.back() == '\n') message.remove_suffix(1);
    if (message.empty() || !shows(level)) return;
    std::string shown;
    make_visible(message, shown);
    if (level != LogLevel::warning)
      return logger(component).log(spdlog_levels[static_cast<std::size_t>(level)], message);
    const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    const auto left_out = repeats_.show(message, now);
    if (!left_out) return;
    if (*left_out == 0) return logger(component).warn(message);
    logger(component).warn(text(message, " (", *left_out, " repetitions were left out)"));
  }

  void write_lines(int descriptor, std::string_view lines, bool console) {
    const Above above;
    if (!shows(LogLevel::info)) return;
    std::string shown;
    make_visible(lines, shown);
    if (console) Console(descriptor).log(spdlog::details::log_msg("lines", spdlog::level::info, view(lines)));
    lines_to_file_.log(spdlog::details::log_msg("lines", spdlog::level::info, view(lines)));
  }

  void set_level(LogLevel level, bool of_recipe) {
    const std::lock_guard lock(log_mutex());
    if (of_recipe && level_given_) return;
    level_given_ = !of_recipe;
    level_ = level;
  }

  void set_rank(int rank, int ranks) {
    const std::lock_guard lock(log_mutex());
    const std::string all = text("[%Y-%m-%d %H:%M:%S.%e] [rank ", rank, "] [%^%l%$] [%n] %v");
    console_->set_pattern(ranks > 1 ? all : "%^%v%$");
    file_output_->set_pattern(all);
  }

  void set_file(const std::string& file) {
    const std::lock_guard lock(log_mutex());
    file_.name(file);
  }

 private:
  Log() { set_rank(0, 1); }

  /// A text may contain names from files of others. `memory` holds what has to be changed.
  static void make_visible(std::string_view& words, std::string& memory) {
    if (is_plain_text(words)) return;
    memory = visible(words);
    words = memory;
  }

  static spdlog::string_view_t view(std::string_view words) { return {words.data(), words.size()}; }

  spdlog::logger& logger(const char* component) {
    auto& known = loggers_[component];
    if (!known) {
      known = std::make_unique<spdlog::logger>(component, spdlog::sinks_init_list{console_, file_output_});
      known->set_level(spdlog::level::debug);
    }
    return *known;
  }

  std::atomic<LogLevel> level_ = LogLevel::info;
  bool level_given_ = false;
  LogFile file_;
  std::shared_ptr<Output> console_ = std::make_shared<Console>(STDERR_FILENO);
  std::shared_ptr<Output> file_output_ = std::make_shared<FileOutput>(file_);
  FileOutput lines_to_file_{file_};
  std::map<std::string, std::unique_ptr<spdlog::logger>, std::less<>> loggers_;
  RepeatLimit repeats_;
};

}  // namespace

std::recursive_mutex& log_mutex() {
  static std::recursive_mutex* const mutex = new std::recursive_mutex;
  return *mutex;
}

std::vector<StatusLine*>& shown_lines() {
  static auto* const lines = new std::vector<StatusLine*>;
  return *lines;
}

LogLevel log_level_of(std::string_view word) {
  for (const auto& [name, level] : log_levels)
    if (word == name) return level;
  throw ConfigError(text("log level '", word, "': expected debug, info, warning or error"));
}

void Logger::write(LogLevel level, std::string_view message) const { Log::get().write(component_, level, message); }
bool Logger::shows(LogLevel level) { return Log::get().shows(level); }

void set_log_level(LogLevel level) { Log::get().set_level(level, false); }
void set_log_level_from_recipe(LogLevel level) { Log::get().set_level(level, true); }
void set_log_rank(int rank, int ranks) { Log::get().set_rank(rank, ranks); }
void set_log_file(const std::string& file) { Log::get().set_file(file); }

void LineLog::write(std::string_view lines, bool console) const { Log::get().write_lines(descriptor_, lines, console); }

}  // namespace tessera::log
